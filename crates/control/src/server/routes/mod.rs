//! The endpoints of the control API and their OpenAPI document, from one declaration each.

mod frames;
mod policy;
mod sets;
mod state;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::map_response;
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::document::convert_errors;
use crate::error::Refusal;
use crate::transaction::Control;

/// The control state, as endpoints take it.
type Ctl = State<Arc<Control>>;

/// The query of a change that has no parameters. It refuses what a client takes for a restriction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

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

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, body = Object)))]
async fn openapi(Extension(document): Extension<Arc<serde_json::Value>>) -> Json<serde_json::Value> {
    Json(document.as_ref().clone())
}

/// The router with every endpoint, and the OpenAPI document.
pub fn router(control: Arc<Control>) -> (axum::Router, serde_json::Value) {
    let (router, api) = OpenApiRouter::with_openapi(ApiDocument::openapi())
        .routes(routes!(policy::command))
        .routes(routes!(policy::print))
        .routes(routes!(policy::apply))
        .routes(routes!(policy::confirm))
        .routes(routes!(policy::rollback))
        .routes(routes!(policy::history))
        .routes(routes!(policy::revision))
        .routes(routes!(policy::diff))
        .routes(routes!(policy::check))
        .routes(routes!(policy::rules, policy::add_rule, policy::flush))
        .routes(routes!(policy::delete_rule))
        .routes(routes!(state::tables))
        .routes(routes!(state::interfaces))
        .routes(routes!(state::connections, state::clear_connections))
        .routes(routes!(state::trace))
        .routes(routes!(state::capture))
        .routes(routes!(frames::explain))
        .routes(routes!(frames::explain_capture))
        .routes(routes!(state::nat))
        .routes(routes!(state::chains))
        .routes(routes!(state::functions))
        .routes(routes!(state::domains))
        .routes(routes!(state::brokers))
        .routes(routes!(sets::sets))
        .routes(routes!(sets::set))
        .routes(routes!(sets::add_elements, sets::delete_elements))
        .routes(routes!(state::fib))
        .routes(routes!(state::neighbors))
        .routes(routes!(state::runtime))
        .routes(routes!(state::drops))
        .routes(routes!(state::fast_path))
        .routes(routes!(state::fields))
        .routes(routes!(state::version))
        .routes(routes!(policy::config))
        .routes(routes!(state::scrape))
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
