//! Rules in brokers, which answer, redirect and close themselves.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mmb_http::{Cause, Target, normalize_path};
use mmb_nf::{L7Answer, L7Handler, L7Request, L7Response, L7Verdict};

use super::rules::Action;
use super::{BLOCKED, COUNTERS, HttpFilter, REDIRECTED, REQUESTS, RESET};
use crate::shared::http_rules::Request;

/// What brokers have counted. Several of them may share an instance.
#[derive(Debug, Default)]
pub(super) struct BrokerCounters([AtomicU64; COUNTERS.len()]);

impl BrokerCounters {
    fn add(&self, which: usize) {
        if let Some(count) = self.0.get(which) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub fn get(&self, which: usize) -> u64 {
        self.0.get(which).map_or(0, |count| count.load(Relaxed))
    }
}

impl HttpFilter {
    /// Returns the number of the rule for a request.
    fn rule_of(&self, request: &L7Request<'_>, room: &mut Vec<u8>) -> Result<Option<usize>, Cause> {
        let message = &*request.message;
        let target = Target::read(message.method(), message.target(), message.values(b"host").next())?;
        room.resize(target.path.len() + 1, 0);
        let path = normalize_path(target.path, room).ok_or(Cause::HeadTooLong)?;
        let found = Request { method: message.method(), host: request.host, path };
        Ok(self.rules.of_request(found, |at| message.values(self.rules.header(at))))
    }

    fn verdict(&self, rule: Option<usize>) -> L7Verdict {
        let Some(rule) = rule.and_then(|number| self.rules.get(number)) else { return L7Verdict::Pass };
        let (counter, verdict) = match rule.action {
            Action::Allow => return L7Verdict::Pass,
            Action::Block => (BLOCKED, L7Verdict::Answer(rule.answer.in_broker.clone())),
            Action::Redirect => (REDIRECTED, L7Verdict::Answer(rule.answer.in_broker.clone())),
            Action::Reset => (RESET, L7Verdict::Close),
        };
        self.in_brokers.add(counter);
        verdict
    }
}

impl L7Handler for HttpFilter {
    /// The normal form of a path.
    type Local = Vec<u8>;

    fn local(&self) -> Vec<u8> {
        Vec::new()
    }

    fn request(&self, request: &mut L7Request<'_>, room: &mut Vec<u8>) -> L7Verdict {
        self.in_brokers.add(REQUESTS);
        match self.rule_of(request, room) {
            Ok(rule) => self.verdict(rule),
            // The functions in front have made it so.
            Err(_) => L7Verdict::Answer(L7Answer::of_status(400)),
        }
    }

    fn response(&self, response: &mut L7Response<'_>, _: &mut Vec<u8>) -> L7Verdict {
        let content_type = response.message.values(b"content-type").next();
        self.verdict(content_type.and_then(|content_type| self.rules.of_response(content_type)))
    }
}

#[cfg(test)]
mod tests {
    use mmb_http::MessageHead;
    use mmb_nf::{Setup, StreamFunction};

    use super::*;
    use crate::shared::http::testing::{answer_of, read_head};

    fn filter(line: &str) -> HttpFilter {
        let args: Vec<_> = line.split(' ').collect();
        let setup = Setup {
            args: &args,
            resolve_port: &|_| None,
            has_pool: &|_| false,
            workers: 1,
            seed: 0,
            files: &std::sync::Arc::default(),
        };
        <HttpFilter as StreamFunction>::new(&setup).unwrap()
    }

    fn request(target: &str, header: &str) -> MessageHead {
        read_head(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n{header}\r\n"))
    }

    /// The rules decide as they do about streams.
    #[test]
    fn the_first_rule_decides() {
        let line =
            "allow path /admin/open block path /admin redirect https://b/ path /old reset header x-bad *1*";
        let filter = filter(line);
        let status = |target: &str, header: &str| match answer_of(&filter, &mut request(target, header)) {
            L7Verdict::Pass => 200,
            L7Verdict::Answer(answer) => answer.status,
            L7Verdict::Close => 0,
        };
        assert_eq!(status("/", ""), 200);
        assert_eq!(status("/admin/open/x", ""), 200);
        assert_eq!(status("/x/..//%61dmin", ""), 403);
        assert_eq!(status("/old", ""), 302);
        assert_eq!(status("/", "X-Bad: 210\r\n"), 0);
        let report = filter.report();
        for (name, count) in [("requests", "5"), ("blocked", "1"), ("redirected", "1"), ("reset", "1")] {
            assert!(report.contains(&(name.to_owned(), count.to_owned())), "{report:?}");
        }
        match answer_of(&filter, &mut request("/old", "")) {
            L7Verdict::Answer(answer) => assert!(answer.headers.starts_with(b"Location: https://b/\r\n")),
            other => panic!("{other:?}"),
        }
    }
}
