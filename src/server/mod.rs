//! WebSocket and HTTP: handshake, both protocol versions, authentication, limits, operator endpoints and the web page.
//!
//! Connections:
//! - `listen`: accepts connections, and closes them when the server stops; `linger`: makes sure that last bytes arrive
//! - `tcp`: the options of connections
//! - `closed`: answers connections before sessions can be taken
//! - `admission`: the limits on clients; `stopping`: how connections end when the server stops
//! - `door`: admits connections, and bounds what clients hold before they have authenticated
//! - [`address`]: finds the address of a request's client
//! - `inside`: connects the dialects over HTTP, which are clients within the process
//! - `handshake`: turns a request into a connection; `closing`: ends connections
//! - `socket`: the task of one WebSocket connection; `connection`: its state
//! - `relay`: connects clients to sessions that other nodes hold; `node`: does the same for other nodes; `peers`: what
//!   requests to them need
//! - `costs`: the cost of commands
//!
//! Credentials:
//! - [`auth`]: tokens, tickets and origins; `granting`: tickets over HTTP
//! - `scope`: what credentials allow
//! - `guesses`: limits wrong credentials by address
//! - `audit`: records sign-ins, refused credentials, what operators read and do, and deletions
//!
//! Commands:
//! - `commands`: the commands of v2; `single`: those of a connection with one session, as v1 has it
//! - `opening`: `open_session`
//! - `sessions`, `tree`: commands answered from the store: lists, entries, the shape of a session
//! - `history`: searches the text of sessions
//!
//! HTTP:
//! - `routes`: the routes; `answers`: what their handlers share
//! - `app`: the state shared by all connections; `backups`: backups into BACKUP_DIR
//! - `repeats`: repeated requests of operators; [`retention`]: deletes old sessions
//! - `operator`: health, metrics, statistics, usage, the context of a session, MCP servers, and what operators change
//! - `pages`: the pages over HTTP
//! - `web`: the pages; `bundle`: joins its modules and style sheets; `offered`: the strategies that it lists

pub(crate) mod address;
mod admission;
mod answers;
mod app;
mod audit;
pub(crate) mod auth;
mod backups;
mod bundle;
mod closed;
mod closing;
mod commands;
mod connection;
mod costs;
mod door;
mod granting;
mod guesses;
mod handshake;
mod history;
mod inside;
mod linger;
mod listen;
mod node;
mod offered;
mod opening;
mod operator;
mod pages;
mod peers;
mod relay;
mod repeats;
pub(crate) mod retention;
mod routes;
mod scope;
mod sessions;
mod single;
mod socket;
mod stopping;
mod tcp;
mod tls;
mod tree;
mod web;

pub(crate) use admission::Admission;
pub(crate) use app::{About, App, Patience};
pub(crate) use audit::{Audit, chain as audit_chain};
pub(crate) use backups::Backups;
pub(crate) use closed::Closed;
pub(crate) use listen::{Running, serve};
pub(crate) use operator::{
    nodes::{chosen as node_chosen, item as node_item, state as node_state},
    usage::{csv as usage_csv, grouping as usage_grouping, item as usage_item, time as usage_time},
};
pub(crate) use peers::Peers;
pub(crate) use repeats::Repeats;
pub(crate) use stopping::Stopping;
pub(crate) use tls::{Identity, Tls};
