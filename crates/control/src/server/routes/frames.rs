//! The endpoints that explain a frame, and a packet of a capture.

use axum::body::Bytes;
use axum::extract::{Query, State};
use serde::Deserialize;

use super::Ctl;
use crate::api::*;
use crate::server::document::{Reply, reply};

/// The way of a frame.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
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
pub(super) async fn explain(State(control): Ctl, Query(query): Query<FrameQuery>, body: Bytes) -> Reply {
    reply(control, move |c| c.explain_frame(&body, &query.interface, query.out.as_deref())).await
}

/// The packet of a capture.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaptureQuery {
    /// The interface that receives the packets.
    interface: String,
    /// The number of the packet, from 1.
    packet: u64,
}

/// What happens to a packet of a capture, as `mmb explain` tells it, under the running configuration and the
/// routes of now: nodes, rules, session, translation, chain, and where it goes. Packets before it are
/// processed, too, so that it finds its session; sessions in service are not asked, and nothing is counted.
#[utoipa::path(post, path = "/v1/explain/capture",
    params(
        ("interface" = String, Query, description = "the interface that receives the packets"),
        ("packet" = u64, Query, description = "the number of the packet, from 1"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "a capture (pcap, pcapng)"),
    responses(
        (status = 200, body = TraceList),
        (status = 400, body = ErrorReply, description = "the body is no capture, or no interface or packet is named"),
        (status = 404, body = ErrorReply, description = "the interface or the packet does not exist"),
        (status = 409, body = ErrorReply, description = "another capture is explained"),
        (status = 422, body = ErrorReply, description = "memory is not available"),
    ))]
pub(super) async fn explain_capture(
    State(control): Ctl,
    Query(query): Query<CaptureQuery>,
    body: Bytes,
) -> Reply {
    reply(control, move |c| c.explain_capture(body, &query.interface, query.packet)).await
}
