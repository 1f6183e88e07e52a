//! The table of commands: the meaning of its columns, and what is derived from a row.

use super::outcomes::Work;
use crate::ErrorCode;

/// One row of the table of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// The command's `type`.
    pub name: &'static str,
    /// The `type` of the reply to a command that was not refused. A refused one is answered by `error`.
    pub reply: &'static str,
    /// The place where the command is executed.
    pub scope: Scope,
    /// Says whether its envelope names a session.
    pub address: Address,
    /// The connections that may send it.
    pub sender: Sender,
    /// Its traces in the session.
    pub does: Does,
    /// The events that report what the command itself did.
    pub events: &'static [&'static str],
    /// The work that it starts or continues, whose events follow.
    pub work: &'static [Work],
    /// The errors specific to it.
    pub errors: &'static [ErrorCode],
    /// Further groups of errors: [`OF_HOOKS`](super::outcomes::OF_HOOKS),
    /// [`OF_THE_MODEL`](super::outcomes::OF_THE_MODEL).
    pub groups: &'static [&'static [ErrorCode]],
}

impl Spec {
    /// Returns true if the command acts only on a session that its connection is subscribed to. Others act on any
    /// session of the user, or on none.
    #[must_use]
    pub fn needs_subscription(&self) -> bool {
        let of_any_session = self.does == Does::Creates
            || self.sender == Sender::NonObserver
            || (self.scope == Scope::Server && self.sender == Sender::Anyone);
        self.address != Address::None && !of_any_session
    }

    /// Returns true if the command only reads, so that repeating it changes nothing.
    #[must_use]
    pub fn is_query(&self) -> bool {
        self.does == Does::Transient && self.sender == Sender::Anyone && self.scope != Scope::Connection
    }

    /// Returns the errors that follow from the other columns.
    #[must_use]
    pub fn refusals(&self) -> Vec<ErrorCode> {
        let mut codes = Vec::new();
        if self.needs_subscription() {
            codes.push(ErrorCode::NoSession);
        }
        // Also if it is deleted while the command waits. A connection answers its own commands at once, from what it is
        // subscribed to.
        let is_looked_up = self.scope != Scope::Connection || self.does == Does::Creates;
        if self.address != Address::None && is_looked_up {
            codes.push(ErrorCode::SessionNotFound);
        }
        if self.sender != Sender::Anyone {
            codes.push(ErrorCode::ReadOnly);
        }
        if self.does.writes() {
            codes.push(ErrorCode::IdempotencyConflict);
        }
        if self.does == Does::Writes {
            codes.push(ErrorCode::SessionDamaged);
        }
        codes
    }

    /// Returns every error that can refuse the command, besides those of [`OF_A_FRAME`](super::outcomes::OF_A_FRAME)
    /// and [`OF_ANY`](super::outcomes::OF_ANY).
    #[must_use]
    pub fn own_errors(&self) -> Vec<ErrorCode> {
        let mut codes: Vec<ErrorCode> = Vec::new();
        for code in self.errors.iter().chain(self.groups.iter().copied().flatten()).copied().chain(self.refusals()) {
            if !codes.contains(&code) {
                codes.push(code);
            }
        }
        codes
    }
}

/// The place where a command is executed. [`Command::route`] sorts commands by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// On the connection that sent it.
    Connection,
    /// In the store and the registry of sessions, without the session's own loop. Its row enforces only the refusal to
    /// observers; what executes it checks the owner, a stopping server and repeated ids.
    Server,
    /// In the actor of the session that the command names, which knows its connections.
    Hosting,
    /// In the loop of the session that the command names.
    Session,
}

/// Says whether a command's envelope names a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// It must not.
    None,
    /// It may. The command's own documentation says what it does without one.
    Optional,
    /// It must.
    Required,
}

/// The connections of a session's user that may send a command. Operators read sessions over HTTP; no command is
/// reserved for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// Every connection, an observer's included.
    Anyone,
    /// Every connection that does not observe a session, whether it has opened one or not.
    NonObserver,
    /// Every connection that is subscribed to the session as a writer.
    Writer,
}

/// A command's traces in a session. They decide whether it is executed once per `id`, and when it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    /// Appends nothing to a session's log, and is not remembered: each copy is executed.
    Transient,
    /// Creates a session, once for each `id` of a user, unless it names one: then it is transient.
    Creates,
    /// Appends nothing either, but takes long: a copy that arrives before the reply gets the same reply.
    Previews,
    /// Writes to the session, once for each `id`. Refused while the server stops or the session is damaged.
    Writes,
    /// Writes too, but helps to end what is running, so it is accepted even then.
    Ends,
    /// As [`Does::Ends`]; accepted also while too many commands wait for their replies.
    Cancels,
}

impl Does {
    /// Returns true if the command is idempotent: it is remembered by its `id`, with its reply.
    #[must_use]
    pub const fn writes(self) -> bool {
        match self {
            Self::Writes | Self::Ends | Self::Cancels => true,
            Self::Transient | Self::Creates | Self::Previews => false,
        }
    }
}

/// Other names of commands, each with the name in the table. A command under either name is the same command.
pub const OTHER_NAMES: [(&str, &str); 1] = [("manual_compact", "start_compaction")];

/// Returns the row of `[name, reply, scope, address, sender, does { outcomes }]`.
macro_rules! spec {
    ([$name:literal, $reply:literal, $scope:ident, $address:ident, $sender:ident, $does:ident {
        $(events: $($event:literal)*;)?
        $(work: $($work:ident)*;)?
        $(errors: $($error:ident)*;)?
        $(groups: $($group:ident)*;)?
    }]) => {
        Spec {
            name: $name,
            reply: $reply,
            scope: Scope::$scope,
            address: Address::$address,
            sender: Sender::$sender,
            does: Does::$does,
            events: &[$($($event),*)?],
            work: &[$($(outcomes::Work::$work),*)?],
            errors: &[$($(crate::ErrorCode::$error),*)?],
            groups: &[$($(outcomes::$group),*)?],
        }
    };
}

/// Declares the commands, from rows `Variant(Payload) = "name" => "reply", Scope, Address, Sender, Does { outcomes }`.
macro_rules! commands {
    ($(
        $(#[$doc:meta])*
        $variant:ident($payload:ty) = $name:literal
            => $reply:literal, $scope:ident, $address:ident, $sender:ident, $does:ident $outcomes:tt
    )*) => {
        enum_of_commands! {
            /// A command with its payload.
            #[derive(Deserialize)]
            #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
            Command {
                $($(#[$doc])* $variant($payload) = $name [$name, $reply, $scope, $address, $sender, $does $outcomes],)*
            }
        }

        impl Command {
            /// Every command's row, in the order of the table.
            pub const TABLE: &'static [Spec] =
                &[$(spec!([$name, $reply, $scope, $address, $sender, $does $outcomes]),)*];

            /// Every command's name, in the order of the table.
            pub const NAMES: &'static [&'static str] = &[$($name,)*];

            /// Parses the payload of the command named `name`; returns `None` if there is no such command.
            pub(crate) fn parse(
                name: &str,
                payload: &str,
            ) -> Option<Result<Self, crate::frame::payload::PayloadError>> {
                match Self::name_in_table(name) {
                    $($name => Some(crate::frame::payload::payload::<$payload>(payload).map(Self::$variant)),)*
                    _ => None,
                }
            }

            /// Sorts the command by its [`Scope`].
            #[must_use]
            pub fn route(self) -> Routed {
                match self {
                    $(Self::$variant(payload) => routed!($scope $variant payload),)*
                }
            }
        }

        routes! {
            [] [] [] []
            $($scope {
                $(#[$doc])* $variant($payload) = $name [$name, $reply, $scope, $address, $sender, $does $outcomes],
            })*
        }
    };
}

/// Returns a command of one scope as a [`Routed`].
macro_rules! routed {
    (Connection $variant:ident $payload:ident) => {
        Routed::Connection(ConnectionCommand::$variant($payload))
    };
    (Server $variant:ident $payload:ident) => {
        Routed::Server(ServerCommand::$variant($payload))
    };
    (Hosting $variant:ident $payload:ident) => {
        Routed::Hosting(HostingCommand::$variant($payload))
    };
    (Session $variant:ident $payload:ident) => {
        Routed::Session(SessionCommand::$variant($payload))
    };
}

/// Declares an enum of commands, each with its name and its row.
macro_rules! enum_of_commands {
    ($(#[$of_enum:meta])* $enum:ident {
        $($(#[$doc:meta])* $variant:ident($payload:ty) = $name:literal $spec:tt,)*
    }) => {
        $(#[$of_enum])*
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(tag = "type", content = "payload")]
        pub enum $enum {
            $($(#[$doc])* #[serde(rename = $name)] $variant($payload),)*
        }

        impl $enum {
            /// Returns the command's row.
            #[must_use]
            pub fn spec(&self) -> &'static Spec {
                match self {
                    $(Self::$variant(_) => const { &spec!($spec) },)*
                }
            }
        }
    };
}

/// Declares an enum for each scope, so that the code that executes the commands of one scope matches them exhaustively.
/// Takes the rows one by one and puts each into the list of its scope; once none is left, the lists become the enums.
macro_rules! routes {
    ([$($connection:tt)*] [$($server:tt)*] [$($hosting:tt)*] [$($session:tt)*]
     Connection { $($row:tt)* } $($rest:tt)*) => {
        routes! { [$($connection)* $($row)*] [$($server)*] [$($hosting)*] [$($session)*] $($rest)* }
    };
    ([$($connection:tt)*] [$($server:tt)*] [$($hosting:tt)*] [$($session:tt)*]
     Server { $($row:tt)* } $($rest:tt)*) => {
        routes! { [$($connection)*] [$($server)* $($row)*] [$($hosting)*] [$($session)*] $($rest)* }
    };
    ([$($connection:tt)*] [$($server:tt)*] [$($hosting:tt)*] [$($session:tt)*]
     Hosting { $($row:tt)* } $($rest:tt)*) => {
        routes! { [$($connection)*] [$($server)*] [$($hosting)* $($row)*] [$($session)*] $($rest)* }
    };
    ([$($connection:tt)*] [$($server:tt)*] [$($hosting:tt)*] [$($session:tt)*]
     Session { $($row:tt)* } $($rest:tt)*) => {
        routes! { [$($connection)*] [$($server)*] [$($hosting)*] [$($session)* $($row)*] $($rest)* }
    };
    ([$($connection:tt)*] [$($server:tt)*] [$($hosting:tt)*] [$($session:tt)*]) => {
        enum_of_commands! {
            /// A command that is executed on the connection.
            ConnectionCommand { $($connection)* }
        }
        enum_of_commands! {
            /// A command that is executed in the store and the registry of sessions.
            ServerCommand { $($server)* }
        }
        enum_of_commands! {
            /// A command that is executed in a session's actor.
            HostingCommand { $($hosting)* }
        }
        enum_of_commands! {
            /// A command that is executed in a session's loop.
            SessionCommand { $($session)* }
        }

        /// A command, sorted by its [`Scope`].
        #[derive(Debug, Clone, PartialEq)]
        pub enum Routed {
            /// On the connection.
            Connection(ConnectionCommand),
            /// In the store and the registry of sessions.
            Server(ServerCommand),
            /// In a session's actor.
            Hosting(HostingCommand),
            /// In a session's loop.
            Session(SessionCommand),
        }
    };
}
