//! How the routes at one prefix change by what the kernel says.
//!
//! Theory of operation. Routes of one table with the same metric stand in the order in which the kernel considers them: with
//! IPv4 by the order in which they were added, before or behind. With IPv6 those through gateways are one route with several
//! next hops, which a message names as a whole when some are added, and one by one when they go.
//!
//! A dump tells what there is while changes go on, and may be behind them. Each dump has a number; a route carries the number
//! of the dump in which it was last seen, and whether it was a change that told. Lines of a dump do not touch a prefix and
//! metric of which a change has told since the dump began. What carries an older number when the dump is over is gone.

use mmb_route::NextHopId;
use smallvec::SmallVec;

use crate::event::{How, Legs};
use crate::hops::{Recipe, Ways};
use crate::tree::Line;

pub(crate) type Lines = SmallVec<[Line; 1]>;

/// The number of the dump that goes on or was the last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    number: u8,
    /// Whether it goes on.
    pub dumping: bool,
}

impl Moment {
    /// The next dump begins.
    pub fn next(self) -> Moment {
        Moment { number: (self.number + 1) & 0x7f, dumping: true }
    }

    /// The mark of what is told now, by a change or a dump.
    pub fn stamp(self, change: bool) -> u8 {
        self.number << 1 | u8::from(change)
    }

    /// Whether a change has told of it since the dump began.
    pub fn is_changed(self, stamp: u8) -> bool {
        stamp == self.stamp(true)
    }

    /// Whether it was seen in this dump.
    pub fn is_fresh(self, stamp: u8) -> bool {
        stamp >> 1 == self.number
    }
}

/// A route as a message has it.
#[derive(Clone, Debug)]
pub(crate) struct News {
    pub rank: u8,
    pub metric: u32,
    pub kind: u8,
    pub protocol: u8,
    pub recipe: Recipe,
}

/// The routes with a rank and metric: from where to where.
fn group(lines: &Lines, rank: u8, metric: u32) -> std::ops::Range<usize> {
    let key = (rank, metric);
    let start = lines.partition_point(|line| (line.rank, line.metric) < key);
    let end = lines.partition_point(|line| (line.rank, line.metric) <= key);
    start..end
}

/// There is a route. True: whether all is right can only be told by another dump.
pub(crate) fn add(lines: &mut Lines, ways: &mut Ways, news: News, how: How, moment: Moment) -> bool {
    let there = group(lines, news.rank, news.metric);
    if how == How::Dump && lines[there.clone()].iter().any(|line| moment.is_changed(line.stamp)) {
        return false;
    }
    let stamp = moment.stamp(how != How::Dump);
    let doubt = how != How::Dump && doubtful(&lines[there.clone()], moment);
    if let Some(at) = there.clone().find(|at| are_one(&news.recipe, ways.recipe(lines[*at].way))) {
        let alone = how == How::Replace || how == How::Dump && !moment.is_fresh(lines[at].stamp);
        let recipe =
            if alone { news.recipe.clone() } else { united(&news.recipe, ways.recipe(lines[at].way)) };
        let way = ways.acquire(recipe);
        ways.release(lines[at].way);
        lines[at] = line(&news, way, stamp);
    } else {
        let way = ways.acquire(news.recipe.clone());
        place(lines, ways, line(&news, way, stamp), how, moment);
    }
    touch(lines, news.rank, news.metric, how, moment);
    doubt && group(lines, news.rank, news.metric).len() > 1
}

fn line(news: &News, way: NextHopId, stamp: u8) -> Line {
    Line { metric: news.metric, way, rank: news.rank, kind: news.kind, protocol: news.protocol, stamp }
}

/// A change of some that the dump has not confirmed yet: there might be more or less of them than we know.
fn doubtful(there: &[Line], moment: Moment) -> bool {
    moment.dumping && there.iter().any(|line| !moment.is_fresh(line.stamp))
}

/// A change has told of all that have this metric.
fn touch(lines: &mut Lines, rank: u8, metric: u32, how: How, moment: Moment) {
    if how != How::Dump {
        let there = group(lines, rank, metric);
        lines[there].iter_mut().for_each(|line| line.stamp = moment.stamp(true));
    }
}

/// Puts a route among those with its metric.
fn place(lines: &mut Lines, ways: &mut Ways, new: Line, how: How, moment: Moment) {
    let mut there = group(lines, new.rank, new.metric);
    let same = there.clone().find(|at| lines[*at].way == new.way && lines[*at].kind == new.kind);
    if let (Some(at), How::Add | How::Append) = (same, how) {
        ways.release(new.way);
        lines[at] = new;
        return;
    }
    if how == How::Replace && !there.is_empty() && same != Some(there.start) {
        ways.release(lines.remove(there.start).way);
        there.end -= 1;
    }
    let same = there.clone().find(|at| lines[*at].way == new.way && lines[*at].kind == new.kind);
    if let Some(at) = same {
        ways.release(lines.remove(at).way);
        there.end -= 1;
    }
    let at = match how {
        How::Add | How::Replace => there.start,
        How::Append => there.end,
        How::Dump => {
            let seen = there.clone().rfind(|at| moment.is_fresh(lines[*at].stamp));
            seen.map_or(there.start, |at| at + 1)
        }
    };
    lines.insert(at, new);
}

/// A route is gone. True: whether all is right can only be told by another dump.
pub(crate) fn remove(lines: &mut Lines, ways: &mut Ways, news: News, moment: Moment) -> bool {
    let there = group(lines, news.rank, news.metric);
    let doubt = doubtful(&lines[there.clone()], moment);
    if let Some(at) = there.clone().find(|at| are_one(&news.recipe, ways.recipe(lines[*at].way))) {
        let left = without(&news.recipe, ways.recipe(lines[at].way));
        let before = lines[at].way;
        match left {
            Some(recipe) => lines[at].way = ways.acquire(recipe),
            None => drop(lines.remove(at)),
        }
        ways.release(before);
    } else {
        let is_it = |line: &Line| line.kind == news.kind && ways.recipe(line.way) == Some(&news.recipe);
        let only = there.len() == 1;
        let at = there.clone().find(|at| is_it(&lines[*at])).or(only.then_some(there.start));
        if let Some(at) = at {
            ways.release(lines.remove(at).way);
        }
    }
    touch(lines, news.rank, news.metric, How::Add, moment);
    doubt && !group(lines, news.rank, news.metric).is_empty()
}

/// Whether two are one route of IPv6: next hops by gateways.
fn are_one(new: &Recipe, old: Option<&Recipe>) -> bool {
    let gateways = |recipe: &Recipe| matches!(recipe, Recipe::Legs { v6: true, legs, .. } if legs.iter().all(|leg| leg.gateway.is_some()));
    gateways(new) && old.is_some_and(gateways)
}

fn united(new: &Recipe, old: Option<&Recipe>) -> Recipe {
    match (new, old) {
        (Recipe::Legs { v6, mtu, legs }, Some(Recipe::Legs { legs: old, .. })) => {
            let known = |leg| legs.iter().any(|other| is_same(other, leg));
            let kept: Legs = old.iter().filter(|leg| !known(*leg)).copied().collect();
            normal(*v6, *mtu, kept.into_iter().chain(legs.iter().copied()).collect())
        }
        _ => new.clone(),
    }
}

/// The route that is left when some next hops go.
fn without(gone: &Recipe, old: Option<&Recipe>) -> Option<Recipe> {
    match (gone, old) {
        (Recipe::Legs { legs: gone, .. }, Some(Recipe::Legs { v6, mtu, legs })) => {
            let stays = |leg: &&crate::event::Leg| !gone.iter().any(|other| is_same(other, leg));
            let left: Legs = legs.iter().filter(stays).copied().collect();
            (!left.is_empty()).then(|| normal(*v6, *mtu, left))
        }
        _ => None,
    }
}

fn is_same(one: &crate::event::Leg, other: &crate::event::Leg) -> bool {
    (one.interface, one.gateway) == (other.interface, other.gateway)
}

/// A recipe of next hops in the one form that they have: the weight of a single one means nothing, and order neither.
pub(crate) fn normal(v6: bool, mtu: u16, mut legs: Legs) -> Recipe {
    legs.sort_by_key(|leg| (leg.interface, leg.gateway, leg.weight));
    if let [leg] = &mut legs[..] {
        leg.weight = 1;
    }
    Recipe::Legs { v6, mtu, legs }
}
