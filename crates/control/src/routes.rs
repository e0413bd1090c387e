//! The endpoints of the control API and their OpenAPI document, from one declaration each.

use std::fmt::Display;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::*;
use crate::control::Control;
use crate::error::{Refusal, RefusalKind};
use crate::metrics;
use crate::output::Output;
use crate::stream;

/// Largest request body, in bytes: a file of some millions of rules.
pub const BODY_LIMIT: usize = 256 << 20;

/// Bytes of the longest request that is short work.
const SHORT: usize = 4096;

/// What the OpenAPI document says of the API as a whole.
#[derive(OpenApi)]
#[openapi(info(
    title = "mmb control API",
    description = "HTTP/1.1 over the daemon's Unix socket. A request that fails changes nothing and answers with \
                   one sentence."
))]
struct ApiDocument;

/// Media type of the documents.
const JSON: &str = "application/json";

type Ctl = State<Arc<Control>>;
type Reply = Result<Document, Refusal>;

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self.kind {
            RefusalKind::Invalid => StatusCode::BAD_REQUEST,
            RefusalKind::NotFound => StatusCode::NOT_FOUND,
            RefusalKind::Conflict => StatusCode::CONFLICT,
            RefusalKind::Failed => StatusCode::UNPROCESSABLE_ENTITY,
        };
        (status, Json(self.into_reply())).into_response()
    }
}

/// A JSON document, written out.
struct Document(Vec<u8>);

impl Document {
    fn of(value: &impl Serialize) -> Result<Document, Refusal> {
        let refuse = |e| Refusal::failed(format!("the reply could not be written: {e}"));
        serde_json::to_vec(value).map(Document).map_err(refuse)
    }
}

impl IntoResponse for Document {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, JSON)], self.0).into_response()
    }
}

/// Runs what may take long (a lock, a grace period, 100,000 rules) where it does not hold up other connections.
async fn blocking<T: Send + 'static>(
    control: Arc<Control>,
    work: impl FnOnce(&Control) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(move || work(&control)).await {
        Ok(result) => result,
        Err(panic) => Err(failed(panic)),
    }
}

fn failed(how: impl Display) -> Refusal {
    Refusal::failed(format!("the daemon failed on this request ({how}); nothing was changed"))
}

/// Makes a short change where the request has come in: another thread would have to be woken for it, and this one for the
/// answer, which takes longer than the change. While another change is under way it waits its turn like all others, where
/// it does not hold up connections.
async fn at_once<T: Send + 'static>(
    control: Arc<Control>,
    bytes: usize,
    work: impl FnOnce(&Control) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    if bytes > SHORT || control.is_changing() {
        return blocking(control, work).await;
    }
    // What a panic leaves behind is what it leaves in the other thread.
    std::panic::catch_unwind(AssertUnwindSafe(|| work(&control)))
        .unwrap_or_else(|_| Err(failed("it panicked")))
}

/// The same as [`blocking`], for work whose result is the reply; it is written out there as well.
async fn reply<T: Serialize>(
    control: Arc<Control>,
    work: impl FnOnce(&Control) -> Result<T, Refusal> + Send + 'static,
) -> Reply {
    blocking(control, |c| Document::of(&work(c)?)).await
}

/// Run one line of the language.
#[utoipa::path(post, path = "/v1/command", request_body = CommandRequest, responses(
    (status = 200, body = CommandReply),
    (status = 400, body = ErrorReply, description = "the line is wrong"),
    (status = 404, body = ErrorReply, description = "it names something that does not exist"),
    (status = 409, body = ErrorReply, description = "it contradicts what there is"),
    (status = 422, body = ErrorReply, description = "the system refused, for example to open a port"),
))]
async fn command(State(control): Ctl, body: Bytes) -> Result<Response, Refusal> {
    let CommandRequest { line, format } = document(&body)?;
    let output = blocking(control.clone(), move |c| c.execute(&line)).await?;
    stream::reply(JSON, move |out| output.write_reply(format, &control, out)).await
}

/// Run one line of the language, for its answer as it is to be printed: text for people, or with the format `json` the
/// document and a line feed. Long answers are sent while they are made.
#[utoipa::path(post, path = "/v1/print", request_body = CommandRequest, responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = 400, body = ErrorReply, description = "the line is wrong"),
    (status = 404, body = ErrorReply, description = "it names something that does not exist"),
    (status = 409, body = ErrorReply, description = "it contradicts what there is"),
    (status = 422, body = ErrorReply, description = "the system refused, for example to open a port"),
))]
async fn print(State(control): Ctl, body: Bytes) -> Result<Response, Refusal> {
    let CommandRequest { line, format } = document(&body)?;
    let output = blocking(control.clone(), move |c| c.execute(&line)).await?;
    let write = move |out: &mut stream::ChunkWriter| match format {
        Format::Json => output.write_json(&control, out).and_then(|()| out.write_all(b"\n")),
        Format::Text | Format::Both => output.write_text(&control, out),
    };
    stream::reply("text/plain; charset=utf-8", write).await
}

/// Make the text the configuration: all of it or nothing. Rules that stay keep their counters.
#[utoipa::path(post, path = "/v1/apply", request_body(content = String, content_type = "text/plain"), responses(
    (status = 200, body = ApplyReply),
    (status = 400, body = ErrorReply),
    (status = 409, body = ErrorReply),
    (status = 422, body = ErrorReply),
))]
async fn apply(State(control): Ctl, body: Bytes) -> Reply {
    reply(control, move |c| c.apply(&body)).await
}

/// What `apply` would change.
#[utoipa::path(post, path = "/v1/diff", request_body(content = String, content_type = "text/plain"), responses(
    (status = 200, body = DiffReply),
    (status = 400, body = ErrorReply),
))]
async fn diff(State(control): Ctl, body: Bytes) -> Reply {
    reply(control, move |c| c.diff(&body)).await
}

/// Whether the text is right as a configuration of its own.
#[utoipa::path(post, path = "/v1/check", request_body(content = String, content_type = "text/plain"), responses(
    (status = 200, body = CheckReply),
    (status = 400, body = ErrorReply),
))]
async fn check(State(control): Ctl, body: Bytes) -> Reply {
    reply(control, move |c| c.check(&body)).await
}

/// Every rule with its counters.
#[utoipa::path(get, path = "/v1/rules", responses((status = 200, body = RuleList)))]
async fn rules(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.rules())).await
}

/// Add a rule.
#[utoipa::path(post, path = "/v1/rules", request_body = RuleRequest, responses(
    (status = 201, body = Done),
    (status = 400, body = ErrorReply, description = "the rule is wrong"),
    (status = 404, body = ErrorReply, description = "it names an interface that does not exist"),
))]
async fn add_rule(State(control): Ctl, body: Bytes) -> Result<(StatusCode, Json<Done>), Refusal> {
    let request: RuleRequest = document(&body)?;
    let added = at_once(control, body.len(), move |c| c.add_rule_line(&request.rule)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

/// Delete every rule.
#[utoipa::path(delete, path = "/v1/rules", responses((status = 200, body = Done)))]
async fn flush(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.flush())).await
}

/// Delete a rule.
#[utoipa::path(delete, path = "/v1/rules/{index}", params(("index" = u32, Path, description = "the rule's index")),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorReply, description = "not an index"),
        (status = 404, body = ErrorReply, description = "no rule has it"),
    ))]
async fn delete_rule(State(control): Ctl, Path(index): Path<String>) -> Reply {
    let index: u32 =
        index.parse().map_err(|_| Refusal::invalid(format!("`{index}` is not the index of a rule")))?;
    reply(control, move |c| c.delete_rule(index)).await
}

/// The classifier's tables.
#[utoipa::path(get, path = "/v1/tables", responses((status = 200, body = TableList)))]
async fn tables(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.tables())).await
}

/// Interfaces, wires and port counters.
#[utoipa::path(get, path = "/v1/interfaces", responses((status = 200, body = InterfaceList)))]
async fn interfaces(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.interfaces())).await
}

/// Which sessions are meant.
#[derive(Deserialize)]
struct Meant {
    /// Matches of the language.
    #[serde(default, rename = "match")]
    matches: String,
}

/// Runs a line about the sessions that are meant; places in its errors are places in the matches.
async fn about_connections(control: Arc<Control>, words: &str, meant: &Meant) -> Result<Output, Refusal> {
    let line = format!("{words} {}", meant.matches);
    let before = words.len() + 1;
    blocking(control, move |c| c.execute(&line)).await.map_err(|refusal| refusal.without_first(before))
}

/// Sessions, written while they are found.
#[utoipa::path(get, path = "/v1/connections",
    params(("match" = Option<String>, Query, description = "matches of the language; all sessions if absent")),
    responses(
        (status = 200, body = ConnectionList),
        (status = 400, body = ErrorReply, description = "the matches are wrong, or ask what sessions do not have"),
        (status = 404, body = ErrorReply, description = "they name an interface that does not exist"),
    ))]
async fn connections(State(control): Ctl, Query(meant): Query<Meant>) -> Result<Response, Refusal> {
    let output = about_connections(control.clone(), "show connections", &meant).await?;
    stream::reply(JSON, move |out| output.write_json(&control, out)).await
}

/// End sessions.
#[utoipa::path(delete, path = "/v1/connections",
    params(("match" = Option<String>, Query, description = "matches of the language; all sessions if absent")),
    responses(
        (status = 200, body = ClearReply),
        (status = 400, body = ErrorReply, description = "the matches are wrong, or ask what sessions do not have"),
        (status = 404, body = ErrorReply, description = "they name an interface that does not exist"),
    ))]
async fn clear_connections(State(control): Ctl, Query(meant): Query<Meant>) -> Result<Response, Refusal> {
    let output = about_connections(control.clone(), "clear connections", &meant).await?;
    stream::reply(JSON, move |out| output.write_json(&control, out)).await
}

/// NAT pools with their use, and forwards.
#[utoipa::path(get, path = "/v1/nat", responses((status = 200, body = NatReply)))]
async fn nat(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.nat())).await
}

/// Service chains: what they take, how the memory of their sessions is laid out, and what their functions cost.
#[utoipa::path(get, path = "/v1/chains", responses((status = 200, body = ChainList)))]
async fn chains(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.chains())).await
}

/// Network functions: instances with what they count and say of themselves, and the types there are.
#[utoipa::path(get, path = "/v1/functions", responses((status = 200, body = FunctionList)))]
async fn functions(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.functions())).await
}

/// Which routes or neighbours are meant.
#[derive(Deserialize)]
struct Within {
    /// An address or a subnet.
    #[serde(default)]
    prefix: String,
    /// Most routes.
    limit: Option<usize>,
}

/// Runs a line about the prefix that is meant; places in its errors are places in the prefix.
async fn about_prefix(control: Arc<Control>, words: &str, within: &Within) -> Result<Output, Refusal> {
    let line = format!("{words} {}", within.prefix);
    let before = words.len() + 1;
    blocking(control, move |c| c.execute(&line)).await.map_err(|refusal| refusal.without_first(before))
}

/// Routes, as packets follow them, written while they are found.
#[utoipa::path(get, path = "/v1/fib",
    params(
        ("prefix" = Option<String>, Query, description = "an address: the routes that packets to it follow; a subnet: those \
            inside it; all if absent"),
        ("limit" = Option<u64>, Query, description = "most routes; all if absent"),
    ),
    responses(
        (status = 200, body = FibList),
        (status = 400, body = ErrorReply, description = "the prefix or the limit is none"),
    ))]
async fn fib(State(control): Ctl, Query(within): Query<Within>) -> Result<Response, Refusal> {
    let output = match about_prefix(control.clone(), "show fib", &within).await? {
        Output::Fib(listing) => Output::Fib(listing.at_most(within.limit)),
        other => other,
    };
    stream::reply(JSON, move |out| output.write_json(&control, out)).await
}

/// Hosts and routers on connected networks, as the kernel has them.
#[utoipa::path(get, path = "/v1/neighbors",
    params(("prefix" = Option<String>, Query, description = "an address or a subnet; all if absent")),
    responses(
        (status = 200, body = NeighborList),
        (status = 400, body = ErrorReply, description = "the prefix is none"),
    ))]
async fn neighbors(State(control): Ctl, Query(within): Query<Within>) -> Result<Response, Refusal> {
    let output = about_prefix(control.clone(), "show neighbors", &within).await?;
    stream::reply(JSON, move |out| output.write_json(&control, out)).await
}

/// What each graph node of each worker has done.
#[utoipa::path(get, path = "/v1/runtime", responses((status = 200, body = Runtime)))]
async fn runtime(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.runtime())).await
}

/// Packets dropped, for every reason there is.
#[utoipa::path(get, path = "/v1/drops", responses((status = 200, body = DropList)))]
async fn drops(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.drops())).await
}

/// Flows that the kernel sends on by itself.
#[utoipa::path(get, path = "/v1/fast-path", responses((status = 200, body = FastPathReply)))]
async fn fast_path(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.fast_path())).await
}

/// The fields of the language.
#[utoipa::path(get, path = "/v1/fields", responses((status = 200, body = FieldList)))]
async fn fields() -> Json<FieldList> {
    Json(crate::views::fields())
}

/// The daemon.
#[utoipa::path(get, path = "/v1/version", responses((status = 200, body = VersionEntry)))]
async fn version(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.version())).await
}

/// The running configuration, as a file that gives it.
#[utoipa::path(get, path = "/v1/config", responses((status = 200, body = ConfigEntry)))]
async fn config(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.config())).await
}

/// Counters for Prometheus.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, body = String, content_type = "application/openmetrics-text"),
))]
async fn scrape(State(control): Ctl) -> Result<Response, Refusal> {
    let text = blocking(control, |c| {
        metrics::encode(c.scrape())
            .map_err(|_| Refusal::failed("the metrics could not be written".to_owned()))
    });
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text.await?).into_response())
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, body = Object)))]
async fn openapi(
    axum::Extension(document): axum::Extension<Arc<serde_json::Value>>,
) -> Json<serde_json::Value> {
    Json(document.as_ref().clone())
}

/// Reads a request's JSON document; what is wrong with it is said like every other error.
fn document<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|e| Refusal::invalid(format!("the request is not the JSON expected: {e}")))
}

/// Every endpoint, and the document that describes them.
pub fn router(control: Arc<Control>) -> (axum::Router, serde_json::Value) {
    let (router, api) = OpenApiRouter::with_openapi(ApiDocument::openapi())
        .routes(routes!(command))
        .routes(routes!(print))
        .routes(routes!(apply))
        .routes(routes!(diff))
        .routes(routes!(check))
        .routes(routes!(rules, add_rule, flush))
        .routes(routes!(delete_rule))
        .routes(routes!(tables))
        .routes(routes!(interfaces))
        .routes(routes!(connections, clear_connections))
        .routes(routes!(nat))
        .routes(routes!(chains))
        .routes(routes!(functions))
        .routes(routes!(fib))
        .routes(routes!(neighbors))
        .routes(routes!(runtime))
        .routes(routes!(drops))
        .routes(routes!(fast_path))
        .routes(routes!(fields))
        .routes(routes!(version))
        .routes(routes!(config))
        .routes(routes!(scrape))
        .routes(routes!(openapi))
        .split_for_parts();
    let document = serde_json::to_value(&api).unwrap_or_default();
    let router = router
        .fallback(|request: Request| async move {
            Refusal::not_found(format!(
                "there is no {} {}; see /v1/openapi.json",
                request.method(),
                request.uri().path()
            ))
        })
        .layer(map_response(plain_errors))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(axum::Extension(Arc::new(document.clone())))
        .with_state(control);
    (router, document)
}

/// Gives the framework's own refusals (a method that a path has not, a body too large) the shape of ours.
async fn plain_errors(response: Response) -> Response {
    let status = response.status();
    let json = response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t == JSON);
    if !(status.is_client_error() || status.is_server_error()) || json {
        return response;
    }
    let sentence = match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            "this path does not take that method; see /v1/openapi.json".to_owned()
        }
        StatusCode::PAYLOAD_TOO_LARGE => format!("the request is larger than {} MiB", BODY_LIMIT >> 20),
        other => format!("the request was refused: {other}"),
    };
    (status, Json(Refusal::invalid(sentence).into_reply())).into_response()
}
