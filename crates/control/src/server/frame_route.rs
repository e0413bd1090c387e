//! The endpoint that explains a frame.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Query, State};
use serde::Deserialize;

use super::document::{Reply, reply};
use crate::api::*;
use crate::transaction::Control;

/// The way of a frame.
#[derive(Deserialize)]
pub(super) struct FrameQuery {
    /// The interface that receives it.
    interface: String,
    /// The interface that sends it.
    out: Option<String>,
}

/// What the rules say about a frame that is not received: the rules that match, the one that decides, and why
/// others do not match. Sessions, translation and routes are not asked, and nothing is counted.
#[utoipa::path(post, path = "/v1/explain",
    params(
        ("interface" = String, Query, description = "the interface that receives the frame"),
        ("out" = Option<String>, Query, description = "the interface that sends it, for rules with `out`; the other \
            end of the wire if absent"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "an Ethernet frame \
        without its checksum"),
    responses(
        (status = 200, body = FrameReply),
        (status = 400, body = ErrorReply, description = "the frame is empty or too long, or no interface is named"),
        (status = 404, body = ErrorReply, description = "an interface does not exist"),
    ))]
pub(super) async fn explain(
    State(control): State<Arc<Control>>,
    Query(query): Query<FrameQuery>,
    body: Bytes,
) -> Reply {
    reply(control, move |c| c.explain_frame(&body, &query.interface, query.out.as_deref())).await
}
