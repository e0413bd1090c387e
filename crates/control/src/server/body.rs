//! Request bodies: read before the request runs, within the limits of the role.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;

use super::audit::{self, Peer};
use super::document::BODY_LIMIT;
use super::limits::{HeldBody, Limits, Usage};
use super::role::Role;
use crate::audit::AuditFile;
use crate::error::Refusal;
use crate::history::Author;
use crate::refusals::ApiCounters;

/// What the middleware needs.
#[derive(Clone)]
pub(super) struct Gate {
    pub usage: Arc<Usage>,
    pub limits: Limits,
    pub counters: Arc<ApiCounters>,
    pub audit: Option<Arc<AuditFile>>,
}

/// Checks that the client's role permits a request, and reads its body. The memory of the body counts until
/// the last reader drops it, even if the client has disconnected meanwhile. A change is logged with its user,
/// and so is one that was refused.
pub(super) async fn admit(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let role = request.extensions().get::<Role>().copied().unwrap_or(Role::Reader);
    let peer = request.extensions().get::<Option<Peer>>().cloned().flatten();
    if let Err(refusal) = role.check_request(request.method(), request.uri().path()) {
        gate.counters.forbidden.fetch_add(1, Relaxed);
        if !matches!(request.uri().path(), "/v1/check" | "/v1/diff") {
            let change = format!("{} {}", request.method(), request.uri().path());
            let change = audit::shortened(&change);
            audit::log(peer.as_ref(), &change, StatusCode::FORBIDDEN);
            gate.record(&audit::author(peer.as_ref(), Some(&change)), StatusCode::FORBIDDEN);
        }
        return refusal.into_response();
    }
    let (mut parts, body) = request.into_parts();
    let announced = parts.headers.get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
    match gate.read(body, announced.unwrap_or(0), role).await {
        Ok(bytes) => {
            let change = audit::change(&parts.method, parts.uri.path(), parts.uri.query(), &bytes);
            let author = audit::author(peer.as_ref(), change.as_deref());
            parts.extensions.insert(author.clone());
            let response = next.run(Request::from_parts(parts, Body::from(bytes))).await;
            if let Some(change) = change {
                audit::log(peer.as_ref(), &change, response.status());
                gate.record(&author, response.status());
            }
            response
        }
        Err((status, sentence)) => {
            let counter = match status {
                StatusCode::REQUEST_TIMEOUT => &gate.counters.body_timeouts,
                _ => &gate.counters.body_bytes,
            };
            counter.fetch_add(1, Relaxed);
            let reply = axum::Json(Refusal::invalid(sentence).into_reply());
            // The rest of the body is not read.
            (status, [(header::CONNECTION, "close")], reply).into_response()
        }
    }
}

impl Gate {
    /// Records a change.
    fn record(&self, author: &Author, status: StatusCode) {
        if let Some(audit) = &self.audit {
            audit.change(author, status.is_success(), Some(status.as_u16()));
        }
    }

    async fn read(
        &self,
        mut body: Body,
        announced: usize,
        role: Role,
    ) -> Result<Bytes, (StatusCode, String)> {
        let too_large = || {
            (StatusCode::PAYLOAD_TOO_LARGE, format!("the request is larger than {} MiB", BODY_LIMIT >> 20))
        };
        if announced > BODY_LIMIT {
            return Err(too_large());
        }
        let mut held: HeldBody = self.usage.body(role);
        loop {
            let Ok(frame) = tokio::time::timeout(self.limits.body, body.frame()).await else {
                let seconds = self.limits.body.as_secs();
                let sentence =
                    format!("the body of the request did not arrive: nothing came for {seconds} seconds");
                return Err((StatusCode::REQUEST_TIMEOUT, sentence));
            };
            let Some(frame) = frame else { return Ok(Bytes::from_owner(held)) };
            let frame = frame.map_err(|error| {
                (StatusCode::BAD_REQUEST, format!("the body of the request is incomplete: {error}"))
            })?;
            let Some(piece) = frame.data_ref() else { continue };
            if held.len() + piece.len() > BODY_LIMIT {
                return Err(too_large());
            }
            if !held.extend(piece) {
                let sentence = "the requests of all clients are too large together; try again when the others have ended";
                return Err((StatusCode::SERVICE_UNAVAILABLE, sentence.to_owned()));
            }
        }
    }
}
