//! `/metrics`: on the control socket, and over TCP for collectors on other hosts.
//!
//! Theory of operation. The server for TCP has a router with one endpoint, which reads. It has connections of
//! its own, so that clients on the network take none of the control socket's, with the same limits of number
//! and time. It reads no request bodies.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::accept::Server;
use super::document::blocking;
use super::limits::{Limits, Usage};
use crate::error::Refusal;
use crate::metrics::{self, Exposition};
use crate::transaction::Control;

/// The counters, in the format that the client accepts.
pub(super) async fn scrape(control: Arc<Control>, headers: &HeaderMap) -> Result<Response, Refusal> {
    // Several headers of a name are one list (RFC 9110, 5.3).
    let accept: Vec<_> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = Exposition::negotiate(&accept.join(","));
    let text = blocking(control, move |c| {
        let text = metrics::encode(c.scrape());
        let text = text.map_err(|_| Refusal::failed("cannot write the metrics".to_owned()))?;
        Ok(format.format(text))
    });
    let headers = [(header::CONTENT_TYPE, format.content_type()), (header::VARY, "accept")];
    Ok((headers, text.await?).into_response())
}

/// A server with the endpoint `/metrics` and nothing else.
pub(super) fn server(control: &Arc<Control>, limits: Limits) -> Server {
    let answer = |State(control): State<Arc<Control>>, headers: HeaderMap| async move {
        scrape(control, &headers).await
    };
    let router = Router::new()
        .route("/metrics", get(answer))
        .fallback(|| async { (StatusCode::NOT_FOUND, "here is /metrics only\n") })
        .method_not_allowed_fallback(|| async {
            (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET, HEAD")], "/metrics can be read only\n")
        })
        .with_state(control.clone());
    Server::new(router, Arc::new(Usage::new(limits)), limits, control.api_counters().clone())
}
