//! Random runs: whatever the order of requests, settlements, writes, reads, restarts and kills, spending passes the
//! budget by at most the estimate of one request.

use super::{Account, Admission, Amount, Limit};
use crate::seeds::seeds;
use fastrand::Rng;
use std::collections::BTreeMap;

/// What a budget allows, and the largest estimate of a request.
const LIMIT: u64 = 1_000;
const ESTIMATE_MAX: u64 = 150;

fn amount(tokens: u64) -> Amount {
    Amount { nano_usd: 0, tokens }
}

/// A request that was reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The reservation is not stored, so the request is not sent.
    Reserved,
    /// The reservation is stored, and the server has to look once more, because others store theirs too.
    Stored,
    Sent,
    /// It cost this much, which is not stored.
    Settled(u64),
    /// It has ended, and what it cost is stored, or its server was killed.
    Over,
}

#[derive(Debug)]
struct Request {
    server: usize,
    estimate: u64,
    stage: Stage,
    /// What it really cost, or may still cost.
    cost: u64,
}

struct World {
    rng: Rng,
    is_shared: bool,
    table: BTreeMap<String, u64>,
    /// `None` while a server is down.
    servers: Vec<Option<Account>>,
    requests: BTreeMap<String, Request>,
}

impl World {
    fn new(seed: u64, servers: usize) -> Self {
        let servers = vec![Some(Account::loaded(Amount::default(), servers > 1)); servers];
        let is_shared = servers.len() > 1;
        Self { rng: Rng::with_seed(seed), is_shared, table: BTreeMap::new(), servers, requests: BTreeMap::new() }
    }

    fn stored(&self) -> Amount {
        amount(self.table.values().sum())
    }

    /// The most that may have been spent: what settled requests cost, and what the others may cost.
    fn spent(&self) -> u64 {
        self.requests.values().map(|request| request.cost).sum()
    }

    fn some_request(&mut self, is_meant: impl Fn(&Request) -> bool) -> Option<String> {
        let ids: Vec<&String> = self.requests.iter().filter(|(_, one)| is_meant(one)).map(|(id, _)| id).collect();
        (!ids.is_empty()).then(|| ids[self.rng.usize(..ids.len())].clone())
    }

    fn reread(&mut self, server: usize) {
        let stored = self.stored();
        if let Some(account) = &mut self.servers[server] {
            let written = account.written_ids();
            account.reread(stored, &written);
        }
    }

    fn write(&mut self, id: &str) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let (tokens, next) = match request.stage {
            Stage::Reserved if self.is_shared => (request.estimate, Stage::Stored),
            Stage::Reserved => (request.estimate, Stage::Sent),
            Stage::Settled(cost) => (cost, Stage::Over),
            Stage::Stored | Stage::Sent | Stage::Over => return,
        };
        request.stage = next;
        if next == Stage::Sent {
            request.cost = request.estimate;
        }
        self.table.insert(id.to_owned(), tokens);
        if let Some(account) = &mut self.servers[request.server] {
            account.written(id, amount(tokens));
        }
    }

    /// Looks once more after a reservation was stored: the request is sent, or gives way to those of other servers.
    fn look_again(&mut self, id: &str) {
        let server = self.requests[id].server;
        self.reread(server);
        let limit = Limit { tokens: Some(LIMIT), nano_usd: None };
        let Some(account) = &mut self.servers[server] else { return };
        let is_admitted = account.still_admits(id, &limit);
        let request = self.requests.get_mut(id).unwrap();
        if is_admitted {
            (request.stage, request.cost) = (Stage::Sent, request.estimate);
        } else {
            account.settle(id, amount(0));
            request.stage = Stage::Settled(0);
        }
    }

    fn kill(&mut self, server: usize) {
        self.servers[server] = None;
        for request in self.requests.values_mut().filter(|request| request.server == server) {
            // A request in progress may have cost anything up to its estimate, which stays stored.
            request.stage = Stage::Over;
        }
    }

    fn step(&mut self, number: usize) {
        let server = self.rng.usize(..self.servers.len());
        match self.rng.u8(..20) {
            0 => self.kill(server),
            1 | 2 if self.servers[server].is_none() => {
                self.servers[server] = Some(Account::loaded(self.stored(), self.is_shared));
            }
            3..=5 => {
                if let Some(id) = self.some_request(|one| matches!(one.stage, Stage::Reserved | Stage::Settled(_))) {
                    self.write(&id);
                }
            }
            6..=10 => {
                let Some(id) = self.some_request(|one| one.stage == Stage::Sent) else { return };
                let request = self.requests.get_mut(&id).unwrap();
                let cost = self.rng.u64(..=request.estimate);
                (request.stage, request.cost) = (Stage::Settled(cost), cost);
                if let Some(account) = &mut self.servers[request.server] {
                    account.settle(&id, amount(cost));
                }
            }
            11 => self.reread(server),
            12 => {
                if let Some(id) = self.some_request(|one| one.stage == Stage::Stored) {
                    self.look_again(&id);
                }
            }
            _ => {
                let limit = Limit { tokens: Some(LIMIT), nano_usd: None };
                let Some(account) = &mut self.servers[server] else { return };
                if account.admits(&limit) != Admission::Free {
                    return;
                }
                let (id, estimate) = (format!("r{number}"), self.rng.u64(1..=ESTIMATE_MAX));
                account.reserve(&id, amount(estimate));
                self.requests.insert(id, Request { server, estimate, stage: Stage::Reserved, cost: 0 });
            }
        }
    }
}

#[test]
fn spending_never_passes_the_budget_by_more_than_one_estimate() {
    let (mut reached, mut waited) = (0, 0);
    for seed in seeds("BUDGETS", 400) {
        let servers = if seed % 2 == 0 { 1 } else { 3 };
        let mut world = World::new(seed, servers);
        for number in 0..400 {
            world.step(number);
            let spent = world.spent();
            assert!(spent <= LIMIT + ESTIMATE_MAX, "seed {seed}, step {number}: {spent}");
            let limit = Limit { tokens: Some(LIMIT), nano_usd: None };
            let waits = |account: &Account| account.admits(&limit) == Admission::Wait;
            waited += world.servers.iter().flatten().filter(|account| waits(account)).count();
        }
        // Once everything is settled, each server knows the sum, and nobody waits.
        while let Some(id) = world.some_request(|one| one.stage != Stage::Over) {
            world.write(&id);
            if world.requests[&id].stage == Stage::Stored {
                world.look_again(&id);
            }
            let request = world.requests.get_mut(&id).unwrap();
            if request.stage == Stage::Sent {
                (request.stage, request.cost) = (Stage::Settled(1), 1);
                if let Some(account) = &mut world.servers[request.server] {
                    account.settle(&id, amount(1));
                }
            }
        }
        for server in 0..servers {
            world.reread(server);
            let Some(account) = &world.servers[server] else { continue };
            assert_eq!((account.total(), account.spent()), (world.stored(), world.stored()), "seed {seed}");
            assert!(account.is_quiet(), "seed {seed}");
            let limit = Limit { tokens: Some(LIMIT), nano_usd: None };
            assert_ne!(account.admits(&limit), Admission::Wait, "seed {seed}");
            reached += usize::from(limit.is_reached_by(account.total()));
        }
    }
    assert!(reached > 20 && waited > 20, "the runs must reach the budget: {reached}, {waited}");
}

#[test]
fn users_are_told_once_at_each_share() {
    let limit = Limit { nano_usd: Some(1_000), tokens: Some(10_000) };
    let mut account = Account::loaded(Amount::default(), false);
    let mut told = Vec::new();
    for number in 0..12 {
        let id = format!("r{number}");
        account.reserve(&id, amount(5_000));
        account.settle(&id, Amount { nano_usd: 100, tokens: 1 });
        told.push(account.to_tell(&limit));
        account.written(&id, Amount { nano_usd: 100, tokens: 1 });
        assert_eq!(account.to_tell(&limit), None);
    }
    let expected: Vec<Option<u64>> = (1..=12)
        .map(|n| [(8, 80), (10, 100)].into_iter().find(|(at, _)| *at == n).map(|(_, percent)| percent))
        .collect();
    assert_eq!(told, expected);
}
