//! Assigns the pieces of a Chat Completions stream to tool calls.
//!
//! A piece identifies its call by an index, an id, both or neither. Some servers use one index or one id for all calls,
//! or a new id in each piece. So a piece continues the call with its id, or else the one with its index, or else the
//! last one. It begins a new call instead if it has a name, and that call has another name or is complete with other
//! arguments. The names of the offered tools distinguish a name that arrives in pieces from the name of another call.
//!
//! Invariant: a call that a server sends twice is one call.

use crate::{
    core::model::ModelFault,
    provider::upstream::{Assembly, Object, Piece, text},
};
use std::borrow::Cow;

/// The calls of an answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The names of the offered tools.
    offered: Vec<String>,
    open: Vec<OpenCall>,
}

/// A call that pieces can still extend.
#[derive(Debug)]
struct OpenCall {
    index: Option<u64>,
    id: String,
    part: usize,
}

/// A parsed piece.
#[derive(Clone, Copy)]
struct Said<'a> {
    index: Option<u64>,
    id: Option<&'a str>,
    name: Option<&'a str>,
    arguments: &'a str,
}

impl Calls {
    /// Starts without calls. `offered` has the names of the offered tools.
    pub(super) fn new(offered: Vec<String>) -> Self {
        Self { offered, open: Vec::new() }
    }

    /// Adds the pieces of one event. `whole` means that they are the calls of a whole answer, which may already have
    /// been streamed.
    pub(super) fn pieces<'a>(
        &mut self,
        deltas: impl Iterator<Item = Object<'a>>,
        whole: bool,
        assembly: &mut Assembly<'_>,
    ) -> Result<(), ModelFault> {
        let mut before = None;
        for (at, delta) in deltas.enumerate() {
            let (id, function) = (delta.id("id"), delta.object("function"));
            let (name, arguments) = function.as_ref().map(name_and_arguments).unwrap_or_default();
            let said = Said {
                index: delta.position("index"),
                id: id.as_deref().filter(|id| !id.is_empty()),
                name: name.as_deref().filter(|name| !name.is_empty()),
                arguments: &arguments,
            };
            if whole && self.repeat(at, said, assembly)? {
                continue;
            }
            before = self.piece(said, before, assembly)?;
            if let Some(at) = before {
                for (name, value) in delta.fields() {
                    assembly.set_call_field(self.open[at].part, name, value)?;
                }
            }
        }
        Ok(())
    }

    /// Adds a piece of the field `function_call`, which predates parallel calls.
    pub(super) fn only(&mut self, function: &Object<'_>, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        let (name, arguments) = name_and_arguments(function);
        let name = name.as_deref().filter(|name| !name.is_empty());
        self.piece(Said { index: None, id: None, name, arguments: &arguments }, None, assembly)?;
        Ok(())
    }

    /// Recognises a call of a whole answer that was already streamed: by its id, or by its position if the name
    /// matches. Returns false if the call is new.
    fn repeat(&mut self, at: usize, said: Said<'_>, assembly: &mut Assembly<'_>) -> Result<bool, ModelFault> {
        let by_id = self.open.iter().find(|call| said.id.is_some_and(|id| call.id == id));
        let in_place = self.open.get(at).filter(|call| said.name == Some(assembly.call_so_far(call.part).0));
        let Some(part) = by_id.or(in_place).map(|call| call.part) else { return Ok(false) };
        let arguments = assembly.call_so_far(part).1;
        if !assembly.has_whole_arguments(part) && said.arguments.starts_with(arguments) {
            assembly.begin_call(part);
            assembly.extend(part, said.arguments)?;
        }
        Ok(true)
    }

    /// Adds a piece and returns its call. `before` is the call of the previous piece in the same event.
    fn piece(
        &mut self,
        said: Said<'_>,
        before: Option<usize>,
        assembly: &mut Assembly<'_>,
    ) -> Result<Option<usize>, ModelFault> {
        let continued = self.find(said, assembly).filter(|&at| !self.begins(at, said, before, assembly));
        let at = match continued {
            Some(at) => at,
            // The piece says nothing about a call.
            None if said.name.is_none() && said.arguments.is_empty() => return Ok(before),
            None => self.open(said.index, said.id.unwrap_or_default(), assembly)?,
        };
        let part = self.open[at].part;
        if let Some(name) = said.name {
            self.name(at, name, said.id, assembly);
        }
        if !said.arguments.is_empty() {
            assembly.begin_call(part);
        }
        assembly.extend(part, said.arguments)?;
        Ok(Some(at))
    }

    fn open(&mut self, index: Option<u64>, id: &str, assembly: &mut Assembly<'_>) -> Result<usize, ModelFault> {
        let part = assembly.open(Piece::call(id))?;
        self.open.push(OpenCall { index, id: id.to_owned(), part });
        Ok(self.open.len() - 1)
    }

    /// Returns the call that a piece continues, if its name does not show that it begins another.
    fn find(&self, said: Said<'_>, assembly: &Assembly<'_>) -> Option<usize> {
        let same_index = |call: &OpenCall| Some(call.index? == said.index?);
        let same_id = |call: &OpenCall| said.id.filter(|_| !call.id.is_empty()).map(|id| call.id == id);
        // A server that gives a new id or index to each piece names the call at most once.
        let goes_on = |call: &OpenCall| {
            let (name, arguments) = assembly.call_so_far(call.part);
            let same_name = said.name.is_none_or(|said_name| {
                said_name == name && !arguments.is_empty() && !said.arguments.trim_start().starts_with('{')
            });
            same_name && !assembly.has_whole_arguments(call.part)
        };
        let named = self.open.iter().rposition(|call| match (same_id(call), same_index(call)) {
            (Some(true), Some(false)) => said.name.is_none() && goes_on(call),
            (Some(true), _) => true,
            _ => false,
        });
        let last = self.open.len().wrapping_sub(1);
        named.or_else(|| {
            let calls = self.open.iter().enumerate();
            let mut found = calls.rev().filter(|(at, call)| match (same_index(call), same_id(call)) {
                (Some(false), _) | (_, Some(true)) => false,
                (Some(true), None) => true,
                (Some(true), Some(false)) => goes_on(call),
                (None, None) => *at == last,
                (None, Some(false)) => *at == last && goes_on(call),
            });
            found.next().map(|(at, _)| at)
        })
    }

    /// Returns true if a piece begins a new call instead of continuing this one.
    fn begins(&self, at: usize, said: Said<'_>, before: Option<usize>, assembly: &Assembly<'_>) -> bool {
        let Some(name) = said.name else { return false };
        let part = self.open[at].part;
        let (known, arguments) = assembly.call_so_far(part);
        if before == Some(at) {
            // Two entries of one list are two calls.
            true
        } else if known.is_empty() {
            false
        } else if arguments.is_empty() {
            self.grown(known, name).is_none()
        } else if assembly.has_whole_arguments(part) {
            let is_named_again = said.arguments.is_empty() && (said.index.is_some() || said.id.is_some());
            known != name || !(is_named_again || repeats(arguments, said.arguments))
        } else {
            known != name
        }
    }

    /// Sets the name of a call. Begins the call if no further piece can change its name.
    fn name(&mut self, at: usize, name: &str, id: Option<&str>, assembly: &mut Assembly<'_>) {
        let call = &mut self.open[at];
        if call.id.is_empty() {
            call.id = id.unwrap_or_default().to_owned();
        }
        let (id, part) = (call.id.clone(), call.part);
        let (known, arguments) = assembly.call_so_far(part);
        if !known.is_empty() && !arguments.is_empty() {
            return;
        }
        let name = self.grown(known, name).unwrap_or_else(|| name.to_owned());
        assembly.name_call(part, &id, &name);
        let is_longer = |offered: &&String| offered.len() > name.len() && offered.starts_with(&name);
        if self.is_offered(&name) && !self.offered.iter().any(|offered| is_longer(&offered)) {
            assembly.begin_call(part);
        }
    }

    /// Returns the name of a call that already had a name, but no arguments; `None` if the new name is another call's.
    fn grown(&self, known: &str, name: &str) -> Option<String> {
        let joined = [known, name].concat();
        let is_known = self.is_offered(known);
        if self.is_offered(&joined) && !(is_known && self.is_offered(name)) {
            Some(joined)
        } else if name == known {
            Some(name.to_owned())
        } else if is_known {
            None
        } else if name.starts_with(known) {
            Some(name.to_owned())
        } else {
            Some(joined)
        }
    }

    fn is_offered(&self, name: &str) -> bool {
        self.offered.iter().any(|offered| offered == name)
    }
}

/// Returns the name and the arguments in a piece. Some servers do not encode the arguments as a string.
fn name_and_arguments<'a>(function: &Object<'a>) -> (Option<Cow<'a, str>>, Cow<'a, str>) {
    let arguments = function.raw("arguments").map(|raw| text(raw).unwrap_or(Cow::Borrowed(raw.get())));
    (function.text("name"), arguments.unwrap_or_default())
}

/// Returns true if `said` starts with `arguments`.
fn repeats(arguments: &str, said: &str) -> bool {
    said.trim_start().starts_with(arguments.trim())
}
