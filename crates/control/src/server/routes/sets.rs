//! The endpoints for named sets.

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use mmb_lang::{NamedSet, SetElement, SetElements, parse_element};

use super::{Ctl, NoParameters};
use crate::api::*;
use crate::error::Refusal;
use crate::history::Author;
use crate::server::document::{Reply, parse, reply};
use crate::transaction::Control;

/// Named sets: their kinds, sizes, and the rules that refer to them.
#[utoipa::path(get, path = "/v1/sets", responses((status = 200, body = SetList)))]
pub(super) async fn sets(State(control): Ctl) -> Reply {
    reply(control, |c| Ok(c.sets())).await
}

/// The elements of a named set.
#[utoipa::path(get, path = "/v1/sets/{set}",
    params(("set" = String, Path, description = "name of the set")),
    responses(
        (status = 200, body = SetElementList),
        (status = 404, body = ErrorReply, description = "there is no such set"),
    ))]
pub(super) async fn set(State(control): Ctl, Path(name): Path<String>) -> Reply {
    let line = format!("show set {name}");
    reply(control, move |c| c.set_elements(&(*name).into()).map_err(|error| error.in_line(&line))).await
}

/// Add elements to a named set, or give known elements another time and comment. Sessions stay open, but for
/// those that rules with the set do not allow any more.
#[utoipa::path(post, path = "/v1/sets/{set}/elements",
    params(("set" = String, Path, description = "name of the set")),
    request_body = ElementRequest,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorReply, description = "an element is invalid or of another kind"),
        (status = 404, body = ErrorReply, description = "there is no such set"),
        (status = 409, body = ErrorReply, description = "the set would have too many elements"),
    ))]
pub(super) async fn add_elements(
    State(control): Ctl,
    Extension(author): Extension<Author>,
    Path(name): Path<String>,
    _: Query<NoParameters>,
    body: Bytes,
) -> Reply {
    let request: ElementRequest = parse(&body)?;
    let elements = elements(&request)?;
    let timeout = request.timeout;
    if timeout.is_some_and(|seconds| !(1..=NamedSet::MAX_TIMEOUT).contains(&seconds)) {
        return Err(Refusal::invalid(format!("`timeout` is 1 to {} seconds", NamedSet::MAX_TIMEOUT)));
    }
    let comment = request.comment.as_deref().map(Box::from);
    if comment.as_deref().is_some_and(|comment| !mmb_lang::is_comment(comment)) {
        return Err(Refusal::invalid("`comment` has 1 to 255 bytes without control characters".to_owned()));
    }
    let added = SetElements { name: (*name).into(), elements, timeout, comment };
    let line = format!("set {name} add");
    let add = move |c: &Control| c.add_elements(&added).map_err(|error| error.in_line(&line));
    reply(control, move |c| author.run(|| add(c))).await
}

/// Remove elements from a named set.
#[utoipa::path(delete, path = "/v1/sets/{set}/elements",
    params(("set" = String, Path, description = "name of the set")),
    request_body = ElementRequest,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorReply, description = "an element is invalid"),
        (status = 404, body = ErrorReply, description = "there is no such set, or it does not have an element"),
    ))]
pub(super) async fn delete_elements(
    State(control): Ctl,
    Extension(author): Extension<Author>,
    Path(name): Path<String>,
    _: Query<NoParameters>,
    body: Bytes,
) -> Reply {
    let request: ElementRequest = parse(&body)?;
    let elements = elements(&request)?;
    let line = format!("set {name} del");
    let delete = move |c: &Control| {
        c.delete_elements(&(*name).into(), &elements).map_err(|error| error.in_line(&line))
    };
    reply(control, move |c| author.run(|| delete(c))).await
}

fn elements(request: &ElementRequest) -> Result<Vec<SetElement>, Refusal> {
    if request.elements.is_empty() {
        return Err(Refusal::invalid("`elements` is empty".to_owned()));
    }
    let parsed = request.elements.iter().map(|text| parse_element(text));
    parsed.collect::<Result<_, _>>().map_err(|error| Refusal::invalid(error.message))
}
