//! The two text formats of a scrape, and which one a client gets.
//!
//! Theory of operation. The encoder writes OpenMetrics. The older text format of Prometheus (version 0.0.4)
//! has the same lines of samples. Its lines of metadata differ: they name a counter with its ending `_total`,
//! there is no metadata of units, an info is a gauge, and there is no line of the end. So one text is made
//! from the other line by line.

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposition {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
}

impl Exposition {
    /// The format for a client, by its header `Accept` (RFC 9110, 12.5.1): OpenMetrics for those that name it
    /// and do not prefer text, else the format of Prometheus, which all collectors read.
    pub fn negotiate(accept: &str) -> Exposition {
        let mut open_metrics = 0;
        // By how exactly a range names text/plain; the most exact one counts.
        let mut text = [None; 3];
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(quality).unwrap_or(1000);
            let place = match name.as_str() {
                "application/openmetrics-text" => {
                    open_metrics = open_metrics.max(weight);
                    continue;
                }
                "text/plain" => 0,
                "text/*" => 1,
                "*/*" => 2,
                _ => continue,
            };
            text[place] = text[place].max(Some(weight));
        }
        let text = text.into_iter().flatten().next().unwrap_or(0);
        if open_metrics > 0 && open_metrics >= text {
            Exposition::OpenMetrics
        } else {
            Exposition::Prometheus
        }
    }

    /// The media type of a reply.
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// A text of OpenMetrics in this format.
    pub fn format(self, open_metrics: String) -> String {
        match self {
            Exposition::OpenMetrics => open_metrics,
            Exposition::Prometheus => to_prometheus(&open_metrics),
        }
    }
}

/// The weight of a parameter `q=0.5`, in thousandths. An invalid one counts as 0.
fn quality(parameter: &str) -> Option<u32> {
    let value = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="))?;
    let value = value.parse::<f32>().ok().filter(|value| (0.0..=1.0).contains(value)).unwrap_or(0.0);
    Some((value * 1000.0) as u32)
}

/// Converts OpenMetrics to the format of Prometheus. Of each metric, `# HELP` comes before `# TYPE`, and its
/// help is written when its type is known.
fn to_prometheus(open_metrics: &str) -> String {
    let mut out = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(_), text) => help = text,
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (ending, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    other => ("", other),
                };
                if let Some(help) = help.take() {
                    // Quotes are escaped in OpenMetrics only.
                    let help = help.replace("\\\"", "\"");
                    out.push_str(&format!("# HELP {name}{ending} {help}\n"));
                }
                out.push_str(&format!("# TYPE {name}{ending} {kind}\n"));
            }
            (Some("#"), ..) => {}
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_decides_about_the_format() {
        use Exposition::*;
        for (accept, format) in [
            ("", Prometheus),
            ("*/*", Prometheus),
            ("text/plain", Prometheus),
            ("application/openmetrics-text", OpenMetrics),
            ("Application/OpenMetrics-Text; version=1.0.0", OpenMetrics),
            // What Prometheus 2.42 sends.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OpenMetrics,
            ),
            ("application/openmetrics-text;q=0.4, text/plain;q=0.5", Prometheus),
            ("application/openmetrics-text;q=0.5, text/plain;q=0.1, */*;q=0.9", OpenMetrics),
            ("application/openmetrics-text;q=0, */*", Prometheus),
            ("application/openmetrics-text;q=x", Prometheus),
            (",;q=1,application/json", Prometheus),
        ] {
            assert_eq!(Exposition::negotiate(accept), format, "{accept}");
        }
    }

    #[test]
    fn metadata_is_converted_and_samples_are_kept() {
        let text = "# HELP mmb_rule_bytes Bytes of \\\"it\\\".\n# TYPE mmb_rule_bytes counter\n\
            # UNIT mmb_rule_bytes bytes\nmmb_rule_bytes_total{rule=\"# TYPE\"} 3\n# HELP mmb_build The release.\n\
            # TYPE mmb_build info\nmmb_build_info{version=\"1\"} 1\n# HELP mmb_rules Number.\n\
            # TYPE mmb_rules gauge\nmmb_rules 1\n# EOF\n";
        let converted = "# HELP mmb_rule_bytes_total Bytes of \"it\".\n# TYPE mmb_rule_bytes_total counter\n\
            mmb_rule_bytes_total{rule=\"# TYPE\"} 3\n# HELP mmb_build_info The release.\n\
            # TYPE mmb_build_info gauge\nmmb_build_info{version=\"1\"} 1\n# HELP mmb_rules Number.\n\
            # TYPE mmb_rules gauge\nmmb_rules 1\n";
        assert_eq!(Exposition::Prometheus.format(text.to_owned()), converted);
        assert_eq!(Exposition::OpenMetrics.format(text.to_owned()), text);
    }
}
