//! The end of a run: without faults every command is answered, every client reads everything, and the session becomes
//! idle.

use super::World;
use crate::{client::Client, script};
use std::time::Duration;
use tokio::time::sleep;

/// The number of checks before a session must be idle.
const REST_LOOKS_MAX: usize = 400;

impl World {
    /// Stops all faults, makes the model answer, and reconnects every client, which reads to the end: the session must
    /// become idle.
    pub(crate) async fn settle(&mut self) {
        self.wire.trace.line("-- the world settles");
        self.wire.disk.heal();
        self.script.calm_down();
        self.habits.calm_down();
        self.workshop.calm_down();
        match self.fleet {
            Some(_) => self.heal_cluster().await,
            None => self.leave_the_newest(),
        }
        // A client that does not know the outcome of a command sends it again.
        for number in 1..self.clients.len() {
            self.clear_up(number).await;
        }
        for look in 0..REST_LOOKS_MAX {
            // Late waits are long: each of several queued turns may wait for hooks of an absent client.
            let millis = match look {
                ..20 => 10,
                20..200 => 2_000,
                _ => 20_000,
            };
            self.pass(Duration::from_millis(millis)).await;
            script::answer_calls(self).await;
            let snapshot = self.clients[1].snapshot().await;
            let at_rest = snapshot.as_ref().is_some_and(|snapshot| {
                let idle = snapshot.turn.is_none() && snapshot.compaction.is_none() && snapshot.queue.is_empty();
                // A preview concerns only its client. Nobody else learns that it is being made.
                let is_answered = |client: &Client| client.connection.as_ref().is_some_and(|c| c.waiting.is_empty());
                let read = |client: &Client| is_answered(client) && client.view.seq == snapshot.seq;
                idle && self.clients.iter().all(read)
            });
            if at_rest {
                return;
            }
        }
        let places: Vec<u64> = self.clients.iter().map(|client| client.view.seq).collect();
        self.wire.history.restless = Some(format!("after {REST_LOOKS_MAX} looks clients are at {places:?}"));
    }

    /// Makes the newest of several servers the only one; others that did not know of it are gone.
    fn leave_the_newest(&mut self) {
        let newest = self.servers.pop();
        let newest_node = newest.as_ref().map(|up| up.server.node);
        self.bury();
        self.servers.extend(newest);
        for client in &mut self.clients {
            if newest_node.is_some_and(|node| !client.is_on(node)) {
                client.cut(&mut self.wire);
            }
        }
    }

    /// Makes a client a writer, which repeats its unanswered commands.
    async fn clear_up(&mut self, number: usize) {
        for _ in 0..20 {
            if self.clients[number].writes() {
                break;
            }
            self.clients[number].cut(&mut self.wire);
            if let Some(server) = self.server_for(number) {
                self.clients[number].join(&mut self.wire, &server, script::writer());
            }
            self.pass(Duration::from_millis(50)).await;
        }
        for (id, command) in self.clients[number].unanswered.clone() {
            let waits = self.clients[number].connection.as_ref().is_some_and(|c| c.waiting.contains(&id));
            if !waits {
                self.clients[number].send(&mut self.wire, id, command).await;
                self.pass(Duration::from_millis(5)).await;
            }
        }
        for _ in 0..20 {
            if self.clients[number].unanswered.is_empty() {
                return;
            }
            self.pass(Duration::from_millis(100)).await;
        }
        let left: Vec<&str> = self.clients[number].unanswered.iter().map(|(id, _)| id.as_str()).collect();
        self.wire.trace.line(format_args!("client {number}: was never answered: {left:?}"));
    }

    /// Lets time pass, reconnects absent clients, and makes everyone read everything.
    pub(crate) async fn pass(&mut self, time: Duration) {
        self.fleet.iter().for_each(|fleet| fleet.acted());
        sleep(time).await;
        for number in 0..self.clients.len() {
            self.clients[number].look(&mut self.wire);
            let sent_on = self.clients[number].sent_on();
            if self.clients[number].is_away()
                && let Some(server) = self.server_for(number)
            {
                let wish = if number == 1 { script::writer() } else { script::observer() };
                let wish = sent_on.unwrap_or(wish);
                self.clients[number].join(&mut self.wire, &server, wish);
            }
            self.clients[number].read_all(&mut self.wire).await;
        }
    }
}
