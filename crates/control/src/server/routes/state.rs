//! The endpoints that show the state of the engine, or packets.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;

use super::Ctl;
use crate::api::*;
use crate::command::Output;
use crate::error::Refusal;
use crate::server::document::{JSON, Reply, blocking, parse, reply};
use crate::server::{scrape as metrics, stream};
use crate::transaction::Control;

/// The classifier's tables.
#[utoipa::path(get, path = "/v1/tables", responses((status = 200, body = TableList)))]
pub(super) async fn tables(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.tables())).await
}

/// Interfaces, wires and port counters.
#[utoipa::path(get, path = "/v1/interfaces", responses((status = 200, body = InterfaceList)))]
pub(super) async fn interfaces(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.interfaces())).await
}

/// Selects sessions or rules.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MatchQuery {
    /// Matches of the language.
    #[serde(default, rename = "match")]
    matches: String,
}

/// Runs a command on what the query selects. Places in errors are offsets in the matches.
pub(super) async fn run_with_matches(
    control: Arc<Control>,
    words: &str,
    query: &MatchQuery,
) -> Result<Output, Refusal> {
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
pub(super) async fn connections(
    State(control): Ctl,
    Query(query): Query<MatchQuery>,
) -> Result<Response, Refusal> {
    let output = run_with_matches(control.clone(), "show connections", &query).await?;
    stream::reply(JSON, move |out| output.write_json(&control, out)).await
}

/// Selects packets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PacketQuery {
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
pub(super) async fn trace(
    State(control): Ctl,
    Query(query): Query<PacketQuery>,
) -> Result<Response, Refusal> {
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
pub(super) async fn capture(State(control): Ctl, body: Bytes) -> Result<Response, Refusal> {
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
pub(super) async fn clear_connections(
    State(control): Ctl,
    Query(query): Query<MatchQuery>,
) -> Result<Response, Refusal> {
    let output = run_with_matches(control.clone(), "clear connections", &query).await?;
    stream::reply(JSON, move |out| output.write_json(&control, out)).await
}

/// NAT pools with their usage, and port forwards.
#[utoipa::path(get, path = "/v1/nat", responses((status = 200, body = NatReply)))]
pub(super) async fn nat(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.nat())).await
}

/// Service chains: their traffic, the layout of their scratchpads, and the cost of their functions.
#[utoipa::path(get, path = "/v1/chains", responses((status = 200, body = ChainList)))]
pub(super) async fn chains(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.chains())).await
}

/// Network functions: instances with counters and reports, and all types.
#[utoipa::path(get, path = "/v1/functions", responses((status = 200, body = FunctionList)))]
pub(super) async fn functions(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.functions())).await
}

/// Selects routes or neighbours.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PrefixQuery {
    /// An address or a subnet.
    #[serde(default)]
    prefix: String,
    /// Maximum number of routes.
    limit: Option<usize>,
}

/// Runs a command on a prefix. Places in errors are offsets in the prefix.
pub(super) async fn run_on_prefix(
    control: Arc<Control>,
    words: &str,
    query: &PrefixQuery,
) -> Result<Output, Refusal> {
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
pub(super) async fn fib(State(control): Ctl, Query(query): Query<PrefixQuery>) -> Result<Response, Refusal> {
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
pub(super) async fn neighbors(
    State(control): Ctl,
    Query(query): Query<PrefixQuery>,
) -> Result<Response, Refusal> {
    let output = run_on_prefix(control.clone(), "show neighbors", &query).await?;
    stream::reply(JSON, move |out| output.write_json(&control, out)).await
}

/// Counters of the graph nodes of each worker.
#[utoipa::path(get, path = "/v1/runtime", responses((status = 200, body = Runtime)))]
pub(super) async fn runtime(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.runtime())).await
}

/// Packets dropped, by reason; all reasons.
#[utoipa::path(get, path = "/v1/drops", responses((status = 200, body = DropList)))]
pub(super) async fn drops(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.drops())).await
}

/// Domains: their buffers, and the processes of their functions.
#[utoipa::path(get, path = "/v1/domains", responses((status = 200, body = DomainList)))]
pub(super) async fn domains(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.domains())).await
}

/// Brokers: their state, their limits and their counters.
#[utoipa::path(get, path = "/v1/brokers", responses((status = 200, body = BrokerList)))]
pub(super) async fn brokers(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.brokers())).await
}

/// Flows that the XDP program forwards in the kernel.
#[utoipa::path(get, path = "/v1/fast-path", responses((status = 200, body = FastPathReply)))]
pub(super) async fn fast_path(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.fast_path())).await
}

/// The fields of the language.
#[utoipa::path(get, path = "/v1/fields", responses((status = 200, body = FieldList)))]
pub(super) async fn fields() -> Json<FieldList> {
    Json(crate::query::fields())
}

/// The release, the process and the engine of the daemon.
#[utoipa::path(get, path = "/v1/version", responses((status = 200, body = VersionEntry)))]
pub(super) async fn version(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.version())).await
}

/// Counters for Prometheus: OpenMetrics for clients that accept it, else the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, content((String = "text/plain"), (String = "application/openmetrics-text"))),
))]
pub(super) async fn scrape(State(control): Ctl, headers: HeaderMap) -> Result<Response, Refusal> {
    metrics::scrape(control, &headers).await
}
