//! The endpoints that read and change the configuration: commands, whole texts, revisions, rules.

use std::io::Write;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json};
use serde::Deserialize;

use super::state::{MatchQuery, run_with_matches};
use super::{Ctl, NoParameters};
use crate::api::*;
use crate::command::Output;
use crate::error::Refusal;
use crate::history::Author;
use crate::server::document::{JSON, Reply, blocking, inline, parse, reply};
use crate::server::role::Role;
use crate::server::stream;
use crate::transaction::Control;

/// Run one line of the language.
#[utoipa::path(post, path = "/v1/command", request_body = CommandRequest, responses(
    (status = 200, body = CommandReply),
    (status = 400, body = ErrorReply, description = "the line is invalid"),
    (status = 404, body = ErrorReply, description = "it names something that does not exist"),
    (status = 409, body = ErrorReply, description = "it conflicts with the configuration"),
    (status = 422, body = ErrorReply, description = "the system refused, for example to open a port"),
))]
pub(super) async fn command(
    State(control): Ctl,
    Extension(role): Extension<Role>,
    Extension(author): Extension<Author>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let (output, format) = run_command(&control, role, author, &body).await?;
    stream::reply(JSON, move |out| output.write_reply(format, &control, out)).await
}

/// Run one line of the language and return its printed output: text, or with the format `json` the document
/// and a line feed. Long output is sent while it is produced.
#[utoipa::path(post, path = "/v1/print", request_body = CommandRequest, responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = 400, body = ErrorReply, description = "the line is invalid"),
    (status = 404, body = ErrorReply, description = "it names something that does not exist"),
    (status = 409, body = ErrorReply, description = "it conflicts with the configuration"),
    (status = 422, body = ErrorReply, description = "the system refused, for example to open a port"),
))]
pub(super) async fn print(
    State(control): Ctl,
    Extension(role): Extension<Role>,
    Extension(author): Extension<Author>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let (output, format) = run_command(&control, role, author, &body).await?;
    let write = move |out: &mut stream::ChunkWriter| match format {
        Format::Json => output.write_json(&control, out).and_then(|()| out.write_all(b"\n")),
        Format::Text | Format::Both => output.write_text(&control, out),
    };
    stream::reply("text/plain; charset=utf-8", write).await
}

/// Runs the line of a request, if the role may. Returns its output, and the format that is asked for.
async fn run_command(
    control: &Arc<Control>,
    role: Role,
    author: Author,
    body: &[u8],
) -> Result<(Output, Format), Refusal> {
    let CommandRequest { line, format } = parse(body)?;
    control.check_role(role, &line)?;
    let output = blocking(control.clone(), move |c| author.run(|| c.execute(&line))).await?;
    Ok((output, format))
}

/// Make the text the configuration, all of it or nothing. Rules that remain keep their counters.
#[utoipa::path(post, path = "/v1/apply", params(
        ("allow_empty" = Option<bool>, Query, description = "take a text without commands, which removes all rules"),
        ("confirm" = Option<u32>, Query, description = "seconds after which the change is taken back, unless it is \
            confirmed")),
    request_body(content = String, content_type = "text/plain"), responses(
    (status = 200, body = ApplyReply),
    (status = 400, body = ErrorReply, description = "a line is invalid, or the text has no commands"),
    (status = 409, body = ErrorReply),
    (status = 422, body = ErrorReply),
))]
pub(super) async fn apply(
    State(control): Ctl,
    Extension(author): Extension<Author>,
    Query(query): Query<ApplyQuery>,
    body: Bytes,
) -> Reply {
    let apply = move |c: &Control| match query.confirm {
        Some(seconds) => c.apply_unconfirmed(&body, query.allow_empty, seconds),
        None => c.apply_with(&body, query.allow_empty, None),
    };
    reply(control, move |c| author.run(|| apply(c))).await
}

/// Keep the change that waits for its confirmation.
#[utoipa::path(post, path = "/v1/confirm", responses(
    (status = 200, body = Done),
    (status = 409, body = ErrorReply, description = "no change waits"),
))]
pub(super) async fn confirm(State(control): Ctl, _: Query<NoParameters>) -> Reply {
    reply(control, |c| c.confirm().map_err(|error| error.in_line("confirm"))).await
}

/// Selects a revision.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RevisionQuery {
    /// Its number.
    revision: Option<u64>,
}

/// Make the configuration of a revision the current one.
#[utoipa::path(post, path = "/v1/rollback",
    params(("revision" = Option<u64>, Query, description = "its number; the one before the last change if absent")),
    responses(
        (status = 200, body = Done),
        (status = 404, body = ErrorReply, description = "the revision is not kept"),
        (status = 409, body = ErrorReply, description = "the revision is in force"),
        (status = 422, body = ErrorReply, description = "something that the revision needs is missing"),
    ))]
pub(super) async fn rollback(
    State(control): Ctl,
    Extension(author): Extension<Author>,
    Query(query): Query<RevisionQuery>,
) -> Reply {
    let roll_back = move |c: &Control| c.rollback(query.revision).map_err(|error| error.in_line("rollback"));
    reply(control, move |c| author.run(|| roll_back(c))).await
}

/// The changes of the configuration: who, when and what, the latest first.
#[utoipa::path(get, path = "/v1/history", responses((status = 200, body = HistoryList)))]
pub(super) async fn history(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.revisions())).await
}

/// What the change of a revision removed and added.
#[utoipa::path(get, path = "/v1/history/{revision}",
    params(("revision" = u64, Path, description = "number of the revision")),
    responses(
        (status = 200, body = DiffReply),
        (status = 404, body = ErrorReply, description = "the revision is not kept"),
    ))]
pub(super) async fn revision(State(control): Ctl, Path(number): Path<String>) -> Reply {
    let number: u64 = number
        .parse()
        .map_err(|_| Refusal::invalid(format!("`{number}` is not the number of a revision")))?;
    reply(control, move |c| c.revision_diff(number).map_err(|error| error.in_line("history"))).await
}

/// The changes that `apply` would make.
#[utoipa::path(post, path = "/v1/diff", request_body(content = String, content_type = "text/plain"), responses(
    (status = 200, body = DiffReply),
    (status = 400, body = ErrorReply),
))]
pub(super) async fn diff(State(control): Ctl, body: Bytes) -> Reply {
    reply(control, move |c| c.diff(&body)).await
}

/// Check the text as a complete configuration of its own.
#[utoipa::path(post, path = "/v1/check", request_body(content = String, content_type = "text/plain"), responses(
    (status = 200, body = CheckReply),
    (status = 400, body = ErrorReply),
))]
pub(super) async fn check(State(control): Ctl, body: Bytes) -> Reply {
    reply(control, move |c| c.check(&body)).await
}

/// Rules with their counters.
#[utoipa::path(get, path = "/v1/rules",
    params(("match" = Option<String>, Query, description = "only rules that such packets can match; all if absent")),
    responses(
        (status = 200, body = RuleList),
        (status = 400, body = ErrorReply, description = "the matches are invalid"),
        (status = 404, body = ErrorReply, description = "they name an interface that does not exist"),
    ))]
pub(super) async fn rules(State(control): Ctl, Query(query): Query<MatchQuery>) -> Result<Response, Refusal> {
    let output = run_with_matches(control.clone(), "list", &query).await?;
    stream::reply(JSON, move |out| output.write_json(&control, out)).await
}

/// Add a rule.
#[utoipa::path(post, path = "/v1/rules", request_body = RuleRequest, responses(
    (status = 201, body = Done),
    (status = 400, body = ErrorReply, description = "the rule is invalid"),
    (status = 404, body = ErrorReply, description = "it names an interface that does not exist"),
))]
pub(super) async fn add_rule(
    State(control): Ctl,
    Extension(author): Extension<Author>,
    _: Query<NoParameters>,
    body: Bytes,
) -> Result<(StatusCode, Json<Done>), Refusal> {
    let request: RuleRequest = parse(&body)?;
    let added = inline(control, body.len(), move |c| author.run(|| c.add_rule_line(&request.rule))).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

/// Delete every rule.
#[utoipa::path(delete, path = "/v1/rules", responses((status = 200, body = Done)))]
pub(super) async fn flush(
    State(control): Ctl,
    Extension(author): Extension<Author>,
    _: Query<NoParameters>,
) -> Reply {
    reply(control, |c| author.run(|| c.flush()).map_err(|error| error.in_line("flush"))).await
}

/// Delete a rule.
#[utoipa::path(delete, path = "/v1/rules/{rule}",
    params(("rule" = String, Path, description = "the rule's index or name")),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorReply, description = "neither an index nor a name"),
        (status = 404, body = ErrorReply, description = "there is no such rule"),
    ))]
pub(super) async fn delete_rule(
    State(control): Ctl,
    Extension(author): Extension<Author>,
    Path(rule): Path<String>,
    _: Query<NoParameters>,
) -> Reply {
    reply(control, move |c| author.run(|| c.delete_rule(&rule))).await
}

/// What `apply` takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApplyQuery {
    /// Also a text without commands.
    #[serde(default)]
    allow_empty: bool,
    /// Seconds within which the change is confirmed.
    confirm: Option<u32>,
}

/// The running configuration, as the text of a file.
#[utoipa::path(get, path = "/v1/config", responses((status = 200, body = ConfigEntry)))]
pub(super) async fn config(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.config())).await
}
