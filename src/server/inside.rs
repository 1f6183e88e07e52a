//! Lets in the dialects over HTTP: authenticates a request, and connects its client within the process.

use super::{
    app::App,
    auth::{Grant, bearer},
    connection::{Connection, Link},
    door::Guest,
};
use crate::{
    metrics::limits::Limit,
    shares::{Permit, Share},
    trace::SpanContext,
};
use axum::{
    extract::{ConnectInfo, Query, ws::Message},
    http::{StatusCode, request::Parts},
};
use reseed_client::{Connect, Lost, Pending, Transport};
use reseed_dialects::{
    entrance::{Entrance, Name, Refused, Watch},
    inside,
};
use reseed_protocol::{CloseCode, ErrorBody, ErrorCode};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

impl Entrance for App {
    fn enter<'a>(self: Arc<Self>, parts: &'a Parts, dialect: Name) -> Pending<'a, Result<Box<dyn Connect>, Refused>> {
        Box::pin(async move {
            if self.stopping.leave.is_cancelled() {
                let error = ErrorBody::new(ErrorCode::ShuttingDown, "this server is stopping; send it again");
                return Err(Refused {
                    status: StatusCode::SERVICE_UNAVAILABLE,
                    error: error.with_retry_after_ms(1_000),
                });
            }
            let address = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
            let asked = match dialect {
                Name::AiSdk => Query::<Asked>::try_from_uri(&parts.uri).map(|query| query.0).unwrap_or_default(),
                Name::Responses | Name::ChatCompletions => Asked::default(),
            };
            let token = bearer(&parts.headers).or(asked.token.as_deref());
            let grant = match self.auth.check(token, asked.ticket.as_deref()).await {
                Ok(grant) => grant,
                Err(refusal) => {
                    let refused = self.admission.refuse_credentials(address, dialect.as_str(), refusal).await;
                    return Err(match refused {
                        Ok(()) => Refused { status: StatusCode::UNAUTHORIZED, error: refusal.error().0 },
                        Err(error) => Refused { status: StatusCode::TOO_MANY_REQUESTS, error },
                    });
                }
            };
            self.admission.audit.accepted_request(address, dialect.as_str(), &grant);
            if let Some(guest) = parts.extensions.get::<Arc<Guest>>() {
                guest.known_as(grant.name());
            }
            let address = address.unwrap_or_else(|| Ipv4Addr::UNSPECIFIED.into());
            let context = self.registry.traces().of_headers(&parts.headers);
            let inside: Box<dyn Connect> =
                Box::new(Inside { context, app: self, grant, address, dialect: dialect.as_str() });
            Ok(inside)
        })
    }

    fn seal_keys(&self) -> Vec<[u8; 32]> {
        self.about.seal_keys.clone()
    }

    fn watch(&self, parts: &Parts) -> Option<Arc<dyn Watch>> {
        parts.extensions.get::<Arc<Guest>>().cloned().map(|guest| guest as Arc<dyn Watch>)
    }

    fn body_bytes_max(&self) -> usize {
        self.admission.message_bytes_max
    }

    fn patience(&self) -> Duration {
        self.patience.slow_reader
    }

    fn stateless_sessions(&self) -> usize {
        self.admission.stateless_sessions
    }
}

impl Watch for Guest {
    fn upgraded(&self) {
        self.upgraded();
    }

    fn received(&self, message: &Message) {
        match message {
            Message::Ping(payload) | Message::Pong(payload) => self.control_read(payload.len()),
            _ => self.message_read(),
        }
    }
}

/// The credentials in the address of a WebSocket, because a browser can send no header with the upgrade.
#[derive(Default, serde::Deserialize)]
struct Asked {
    ticket: Option<String>,
    token: Option<String>,
}

/// Makes the connections of one request's client.
pub(super) struct Inside {
    pub(super) app: Arc<App>,
    pub(super) grant: Arc<Grant>,
    pub(super) address: IpAddr,
    /// The name of the dialect in metrics.
    pub(super) dialect: &'static str,
    /// The span in which its client made the request.
    pub(super) context: Option<Box<SpanContext>>,
}

impl Connect for Inside {
    fn connect(&self) -> Pending<'static, Result<Box<dyn Transport>, Lost>> {
        let connected = self.join();
        Box::pin(std::future::ready(connected))
    }
}

impl Inside {
    fn join(&self) -> Result<Box<dyn Transport>, Lost> {
        let app = self.app.clone();
        let full = |why| Lost::closed(CloseCode::Overloaded.code(), why);
        let of_all = app.admission.sockets.take("", 1).map_err(|_| {
            Limit::Connections.refused();
            full("too many open connections")
        })?;
        let of_user = match self.grant.is_operator() {
            // It works however many connections the user has.
            true => Permit::default(),
            false => (app.registry.shares().take(Share::Connections, self.grant.name(), 1))
                .map_err(|_| full("too many connections of this user"))?,
        };
        let (grant, tracker) = (Some(self.grant.clone()), app.stopping.connections.clone());
        let client = inside::connection(|end| {
            let link = Link::Inside(end);
            let mut connection = Connection::new(app, link, grant, true, self.address, (of_all, Some(of_user)), None);
            connection.start_inside(self.dialect);
            connection.context.clone_from(&self.context);
            tracker.track_future(Box::new(connection).run())
        });
        Ok(Box::new(client))
    }
}
