//! Requests and replies: JSON documents, errors, and the threads that requests run on.

use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Json;
use axum::body::to_bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Refusal, RefusalKind};
use crate::transaction::Control;

/// Maximum size of a request body, in bytes: a file of some millions of rules.
pub const BODY_LIMIT: usize = 256 << 20;

/// Maximum size of a request that [`inline`] runs, in bytes.
const SHORT: usize = 4096;

/// Media type of the documents.
pub(super) const JSON: &str = "application/json";

/// A reply, or the refusal of the request.
pub(super) type Reply = Result<Document, Refusal>;

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self.kind {
            RefusalKind::Invalid => StatusCode::BAD_REQUEST,
            RefusalKind::NotFound => StatusCode::NOT_FOUND,
            RefusalKind::Conflict => StatusCode::CONFLICT,
            RefusalKind::Forbidden => StatusCode::FORBIDDEN,
            RefusalKind::Failed => StatusCode::UNPROCESSABLE_ENTITY,
        };
        (status, Json(self.into_reply())).into_response()
    }
}

/// A serialized JSON document.
pub(super) struct Document(Vec<u8>);

impl Document {
    fn of(value: &impl Serialize) -> Reply {
        let refuse = |error| Refusal::failed(format!("cannot write the reply: {error}"));
        serde_json::to_vec(value).map(Document).map_err(refuse)
    }
}

impl IntoResponse for Document {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, JSON)], self.0).into_response()
    }
}

/// Parses the JSON document of a request.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("invalid JSON request: {error}")))
}

/// Runs work on a thread that may block, so that other connections go on. Use it for work that takes a lock,
/// waits for workers, or handles many rules.
pub(super) async fn blocking<T: Send + 'static>(
    control: Arc<Control>,
    work: impl FnOnce(&Control) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(move || work(&control)).await {
        Ok(result) => result,
        Err(panic) => Err(internal_error(panic)),
    }
}

fn internal_error(cause: impl Display) -> Refusal {
    Refusal::failed(format!("internal error ({cause}); nothing was changed"))
}

/// Runs a short change on the thread of the request. Waking another thread and this one again takes longer
/// than the change. While another change is in progress, or for a large request, this is [`blocking`].
pub(super) async fn inline<T: Send + 'static>(
    control: Arc<Control>,
    bytes: usize,
    work: impl FnOnce(&Control) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    if bytes > SHORT || control.is_changing() {
        return blocking(control, work).await;
    }
    // A panic leaves the same state behind as on a thread of its own.
    std::panic::catch_unwind(AssertUnwindSafe(|| work(&control)))
        .unwrap_or_else(|_| Err(internal_error("panic")))
}

/// Runs work as [`blocking`] does, and serializes its result on the same thread.
pub(super) async fn reply<T: Serialize>(
    control: Arc<Control>,
    work: impl FnOnce(&Control) -> Result<T, Refusal> + Send + 'static,
) -> Reply {
    blocking(control, |c| Document::of(&work(c)?)).await
}

/// Gives errors of the framework (unknown method, body too large) the form of a [`Refusal`].
pub(super) async fn convert_errors(response: Response) -> Response {
    let status = response.status();
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t == JSON);
    if !(status.is_client_error() || status.is_server_error()) || is_json {
        return response;
    }
    let sentence = match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            "this path does not support this method; see /v1/openapi.json".to_owned()
        }
        StatusCode::BAD_REQUEST => {
            // The framework's text names the parameter that is invalid or unknown.
            let text = to_bytes(response.into_body(), SHORT).await.unwrap_or_default();
            format!("invalid request: {}; see /v1/openapi.json", String::from_utf8_lossy(&text))
        }
        other => format!("the request was refused: {other}"),
    };
    (status, Json(Refusal::invalid(sentence).into_reply())).into_response()
}
