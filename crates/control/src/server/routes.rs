//! The endpoints of the control API and their OpenAPI document, from one declaration each.

use std::io::Write;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::map_response;
use axum::response::Response;
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::document::{JSON, Reply, blocking, convert_errors, inline, parse, reply};
use super::frame_route;
use super::role::Role;
use super::set_routes;
use super::stream;
use crate::api::*;
use crate::command::Output;
use crate::error::Refusal;
use crate::history::Author;
use crate::transaction::Control;

/// The OpenAPI description of the API as a whole.
#[derive(OpenApi)]
#[openapi(info(
    title = "mmb control API",
    description = "HTTP/1.1 over the daemon's Unix socket, or by HTTPS with a bearer token or a certificate. A request \
                   that fails changes nothing and answers with one sentence."
), modifiers(&Credentials), security((), ("token" = []), ("certificate" = [])))]
struct ApiDocument;

/// What clients show. On the control socket, the kernel tells who they are.
struct Credentials;

impl Modify for Credentials {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("a token of `mmb token` (RFC 6750); not needed on the control socket"));
        let certificate = SecurityScheme::MutualTls {
            description: Some("a certificate whose subject the file of users names".to_owned()),
            deprecated: None,
            extensions: None,
        };
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(token.build()));
        components.add_security_scheme("certificate", certificate);
    }
}

type Ctl = State<Arc<Control>>;

/// Run one line of the language.
#[utoipa::path(post, path = "/v1/command", request_body = CommandRequest, responses(
    (status = 200, body = CommandReply),
    (status = 400, body = ErrorReply, description = "the line is invalid"),
    (status = 404, body = ErrorReply, description = "it names something that does not exist"),
    (status = 409, body = ErrorReply, description = "it conflicts with the configuration"),
    (status = 422, body = ErrorReply, description = "the system refused, for example to open a port"),
))]
async fn command(
    State(control): Ctl,
    Extension(role): Extension<Role>,
    Extension(author): Extension<Author>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let CommandRequest { line, format } = parse(&body)?;
    control.check_role(role, &line)?;
    let output = blocking(control.clone(), move |c| author.run(|| c.execute(&line))).await?;
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
async fn print(
    State(control): Ctl,
    Extension(role): Extension<Role>,
    Extension(author): Extension<Author>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let CommandRequest { line, format } = parse(&body)?;
    control.check_role(role, &line)?;
    let output = blocking(control.clone(), move |c| author.run(|| c.execute(&line))).await?;
    let write = move |out: &mut stream::ChunkWriter| match format {
        Format::Json => output.write_json(&control, out).and_then(|()| out.write_all(b"\n")),
        Format::Text | Format::Both => output.write_text(&control, out),
    };
    stream::reply("text/plain; charset=utf-8", write).await
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
async fn apply(
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
async fn confirm(State(control): Ctl) -> Reply {
    reply(control, |c| c.confirm().map_err(|error| error.in_line("confirm"))).await
}

/// Selects a revision.
#[derive(Deserialize)]
struct RevisionQuery {
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
async fn rollback(
    State(control): Ctl,
    Extension(author): Extension<Author>,
    Query(query): Query<RevisionQuery>,
) -> Reply {
    let roll_back = move |c: &Control| c.rollback(query.revision).map_err(|error| error.in_line("rollback"));
    reply(control, move |c| author.run(|| roll_back(c))).await
}

/// The changes of the configuration: who, when and what, the latest first.
#[utoipa::path(get, path = "/v1/history", responses((status = 200, body = HistoryList)))]
async fn history(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.revisions())).await
}

/// What the change of a revision removed and added.
#[utoipa::path(get, path = "/v1/history/{revision}",
    params(("revision" = u64, Path, description = "number of the revision")),
    responses(
        (status = 200, body = DiffReply),
        (status = 404, body = ErrorReply, description = "the revision is not kept"),
    ))]
async fn revision(State(control): Ctl, Path(number): Path<String>) -> Reply {
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
async fn diff(State(control): Ctl, body: Bytes) -> Reply {
    reply(control, move |c| c.diff(&body)).await
}

/// Check the text as a complete configuration of its own.
#[utoipa::path(post, path = "/v1/check", request_body(content = String, content_type = "text/plain"), responses(
    (status = 200, body = CheckReply),
    (status = 400, body = ErrorReply),
))]
async fn check(State(control): Ctl, body: Bytes) -> Reply {
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
async fn rules(State(control): Ctl, Query(query): Query<MatchQuery>) -> Result<Response, Refusal> {
    let output = run_with_matches(control.clone(), "list", &query).await?;
    stream::reply(JSON, move |out| output.write_json(&control, out)).await
}

/// Add a rule.
#[utoipa::path(post, path = "/v1/rules", request_body = RuleRequest, responses(
    (status = 201, body = Done),
    (status = 400, body = ErrorReply, description = "the rule is invalid"),
    (status = 404, body = ErrorReply, description = "it names an interface that does not exist"),
))]
async fn add_rule(
    State(control): Ctl,
    Extension(author): Extension<Author>,
    body: Bytes,
) -> Result<(StatusCode, Json<Done>), Refusal> {
    let request: RuleRequest = parse(&body)?;
    let added = inline(control, body.len(), move |c| author.run(|| c.add_rule_line(&request.rule))).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

/// Delete every rule.
#[utoipa::path(delete, path = "/v1/rules", responses((status = 200, body = Done)))]
async fn flush(State(control): Ctl, Extension(author): Extension<Author>) -> Reply {
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
async fn delete_rule(
    State(control): Ctl,
    Extension(author): Extension<Author>,
    Path(rule): Path<String>,
) -> Reply {
    reply(control, move |c| author.run(|| c.delete_rule(&rule))).await
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

/// What `apply` takes.
#[derive(Deserialize)]
struct ApplyQuery {
    /// Also a text without commands.
    #[serde(default)]
    allow_empty: bool,
    /// Seconds within which the change is confirmed.
    confirm: Option<u32>,
}

/// Selects sessions or rules.
#[derive(Deserialize)]
struct MatchQuery {
    /// Matches of the language.
    #[serde(default, rename = "match")]
    matches: String,
}

/// Runs a command on what the query selects. Places in errors are offsets in the matches.
async fn run_with_matches(control: Arc<Control>, words: &str, query: &MatchQuery) -> Result<Output, Refusal> {
    let line = format!("{words} {}", query.matches);
    let prefix = words.len() + 1;
    blocking(control, move |c| c.execute(&line)).await.map_err(|refusal| refusal.without_prefix(prefix))
}

/// Sessions, sent while they are read.
#[utoipa::path(get, path = "/v1/connections",
    params(("match" = Option<String>, Query, description = "matches of the language; all sessions if absent")),
    responses(
        (status = 200, body = ConnectionList),
        (status = 400, body = ErrorReply, description = "the matches are invalid, or on fields that sessions do not have"),
        (status = 404, body = ErrorReply, description = "they name an interface that does not exist"),
    ))]
async fn connections(State(control): Ctl, Query(query): Query<MatchQuery>) -> Result<Response, Refusal> {
    let output = run_with_matches(control.clone(), "show connections", &query).await?;
    stream::reply(JSON, move |out| output.write_json(&control, out)).await
}

/// Selects packets.
#[derive(Deserialize)]
struct PacketQuery {
    /// Matches of the language.
    #[serde(default, rename = "match")]
    matches: String,
    /// Index or name of a rule to explain.
    why: Option<String>,
    /// Number of packets.
    count: Option<u32>,
    /// Time in seconds.
    seconds: Option<u32>,
}

/// The path of packets through the graph, each sent when its packet has left. Ends behind the last packet, or
/// when the client disconnects.
#[utoipa::path(get, path = "/v1/trace",
    params(
        ("match" = Option<String>, Query, description = "matches of the language; all packets if absent"),
        ("why" = Option<String>, Query, description = "index or name of a rule to explain match by match"),
        ("count" = Option<u32>, Query, description = "number of packets, at most 1000; 10 if absent"),
        ("seconds" = Option<u32>, Query, description = "time; no limit if absent"),
    ),
    responses(
        (status = 200, body = TraceList),
        (status = 400, body = ErrorReply, description = "the matches or the count are invalid"),
        (status = 404, body = ErrorReply, description = "the matches name an interface that does not exist"),
        (status = 409, body = ErrorReply, description = "another trace runs"),
    ))]
async fn trace(State(control): Ctl, Query(query): Query<PacketQuery>) -> Result<Response, Refusal> {
    let count = query.count.map_or_else(String::new, |count| format!(" count {count}"));
    let seconds = query.seconds.map_or_else(String::new, |seconds| format!(" seconds {seconds}"));
    let why = query.why.map_or_else(String::new, |rule| format!(" why {rule}"));
    let line = format!("trace {}{why}{count}{seconds}", query.matches);
    let output = blocking(control.clone(), move |c| c.execute(&line)).await;
    let output = output.map_err(|refusal| refusal.without_prefix("trace ".len()))?;
    stream::reply(JSON, move |out| output.write_json(&control, out)).await
}

/// Packets as they come in and leave, as a pcapng file that is sent while they are processed. Comments tell
/// why packets were dropped, and by which rule. The request is a line `capture …`. Ends behind the last
/// packet, or when the client disconnects.
#[utoipa::path(post, path = "/v1/capture", request_body = CommandRequest, responses(
    (status = 200, body = Vec<u8>, content_type = "application/x-pcapng"),
    (status = 400, body = ErrorReply, description = "the line is invalid, or no `capture`"),
    (status = 404, body = ErrorReply, description = "it names something that does not exist"),
    (status = 409, body = ErrorReply, description = "another trace or capture runs"),
))]
async fn capture(State(control): Ctl, body: Bytes) -> Result<Response, Refusal> {
    let CommandRequest { line, .. } = parse(&body)?;
    if line.split_whitespace().find(|word| *word != "mmb") != Some("capture") {
        return Err(Refusal::invalid("the line has to begin with `capture`".to_owned()));
    }
    let output = blocking(control, move |c| c.execute(&line)).await?;
    stream::reply("application/x-pcapng", move |out| output.write_pcapng(out)).await
}

/// End sessions.
#[utoipa::path(delete, path = "/v1/connections",
    params(("match" = Option<String>, Query, description = "matches of the language; all sessions if absent")),
    responses(
        (status = 200, body = ClearReply),
        (status = 400, body = ErrorReply, description = "the matches are invalid, or on fields that sessions do not have"),
        (status = 404, body = ErrorReply, description = "they name an interface that does not exist"),
    ))]
async fn clear_connections(
    State(control): Ctl,
    Query(query): Query<MatchQuery>,
) -> Result<Response, Refusal> {
    let output = run_with_matches(control.clone(), "clear connections", &query).await?;
    stream::reply(JSON, move |out| output.write_json(&control, out)).await
}

/// NAT pools with their usage, and port forwards.
#[utoipa::path(get, path = "/v1/nat", responses((status = 200, body = NatReply)))]
async fn nat(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.nat())).await
}

/// Service chains: their traffic, the layout of their scratchpads, and the cost of their functions.
#[utoipa::path(get, path = "/v1/chains", responses((status = 200, body = ChainList)))]
async fn chains(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.chains())).await
}

/// Network functions: instances with counters and reports, and all types.
#[utoipa::path(get, path = "/v1/functions", responses((status = 200, body = FunctionList)))]
async fn functions(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.functions())).await
}

/// Selects routes or neighbours.
#[derive(Deserialize)]
struct PrefixQuery {
    /// An address or a subnet.
    #[serde(default)]
    prefix: String,
    /// Maximum number of routes.
    limit: Option<usize>,
}

/// Runs a command on a prefix. Places in errors are offsets in the prefix.
async fn run_on_prefix(control: Arc<Control>, words: &str, query: &PrefixQuery) -> Result<Output, Refusal> {
    let line = format!("{words} {}", query.prefix);
    let prefix = words.len() + 1;
    blocking(control, move |c| c.execute(&line)).await.map_err(|refusal| refusal.without_prefix(prefix))
}

/// Routes that packets follow, sent while they are read.
#[utoipa::path(get, path = "/v1/fib",
    params(
        ("prefix" = Option<String>, Query, description = "an address: the routes to it; a subnet: the routes inside it; \
            all if absent"),
        ("limit" = Option<u64>, Query, description = "maximum number of routes; all if absent"),
    ),
    responses(
        (status = 200, body = FibList),
        (status = 400, body = ErrorReply, description = "the prefix or the limit is invalid"),
    ))]
async fn fib(State(control): Ctl, Query(query): Query<PrefixQuery>) -> Result<Response, Refusal> {
    let output = match run_on_prefix(control.clone(), "show fib", &query).await? {
        Output::Fib(listing) => Output::Fib(listing.with_limit(query.limit)),
        other => other,
    };
    stream::reply(JSON, move |out| output.write_json(&control, out)).await
}

/// Hosts and routers on connected networks, from the kernel.
#[utoipa::path(get, path = "/v1/neighbors",
    params(("prefix" = Option<String>, Query, description = "an address or a subnet; all if absent")),
    responses(
        (status = 200, body = NeighborList),
        (status = 400, body = ErrorReply, description = "the prefix is invalid"),
    ))]
async fn neighbors(State(control): Ctl, Query(query): Query<PrefixQuery>) -> Result<Response, Refusal> {
    let output = run_on_prefix(control.clone(), "show neighbors", &query).await?;
    stream::reply(JSON, move |out| output.write_json(&control, out)).await
}

/// Counters of the graph nodes of each worker.
#[utoipa::path(get, path = "/v1/runtime", responses((status = 200, body = Runtime)))]
async fn runtime(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.runtime())).await
}

/// Packets dropped, by reason; all reasons.
#[utoipa::path(get, path = "/v1/drops", responses((status = 200, body = DropList)))]
async fn drops(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.drops())).await
}

/// Domains: their buffers, and the processes of their functions.
#[utoipa::path(get, path = "/v1/domains", responses((status = 200, body = DomainList)))]
async fn domains(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.domains())).await
}

/// Brokers: their state, their limits and their counters.
#[utoipa::path(get, path = "/v1/brokers", responses((status = 200, body = BrokerList)))]
async fn brokers(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.brokers())).await
}

/// Flows that the XDP program forwards in the kernel.
#[utoipa::path(get, path = "/v1/fast-path", responses((status = 200, body = FastPathReply)))]
async fn fast_path(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.fast_path())).await
}

/// The fields of the language.
#[utoipa::path(get, path = "/v1/fields", responses((status = 200, body = FieldList)))]
async fn fields() -> Json<FieldList> {
    Json(crate::query::fields())
}

/// The release, the process and the engine of the daemon.
#[utoipa::path(get, path = "/v1/version", responses((status = 200, body = VersionEntry)))]
async fn version(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.version())).await
}

/// The running configuration, as the text of a file.
#[utoipa::path(get, path = "/v1/config", responses((status = 200, body = ConfigEntry)))]
async fn config(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.config())).await
}

/// Counters for Prometheus: OpenMetrics for clients that accept it, else the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, content((String = "text/plain"), (String = "application/openmetrics-text"))),
))]
async fn scrape(State(control): Ctl, headers: HeaderMap) -> Result<Response, Refusal> {
    super::scrape::scrape(control, &headers).await
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, body = Object)))]
async fn openapi(Extension(document): Extension<Arc<serde_json::Value>>) -> Json<serde_json::Value> {
    Json(document.as_ref().clone())
}

/// The router with every endpoint, and the OpenAPI document.
pub fn router(control: Arc<Control>) -> (axum::Router, serde_json::Value) {
    let (router, api) = OpenApiRouter::with_openapi(ApiDocument::openapi())
        .routes(routes!(command))
        .routes(routes!(print))
        .routes(routes!(apply))
        .routes(routes!(confirm))
        .routes(routes!(rollback))
        .routes(routes!(history))
        .routes(routes!(revision))
        .routes(routes!(diff))
        .routes(routes!(check))
        .routes(routes!(rules, add_rule, flush))
        .routes(routes!(delete_rule))
        .routes(routes!(tables))
        .routes(routes!(interfaces))
        .routes(routes!(connections, clear_connections))
        .routes(routes!(trace))
        .routes(routes!(capture))
        .routes(routes!(frame_route::explain))
        .routes(routes!(frame_route::explain_capture))
        .routes(routes!(nat))
        .routes(routes!(chains))
        .routes(routes!(functions))
        .routes(routes!(domains))
        .routes(routes!(brokers))
        .routes(routes!(set_routes::sets))
        .routes(routes!(set_routes::set))
        .routes(routes!(set_routes::add_elements, set_routes::delete_elements))
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
        .layer(map_response(convert_errors))
        .layer(DefaultBodyLimit::disable())
        .layer(Extension(Arc::new(document.clone())))
        .with_state(control);
    (router, document)
}
