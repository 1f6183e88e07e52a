//! Budgets of users, sessions and the deployment.
//!
//! A request is reserved before it is sent: its estimate is stored as a row of the operator's account, which its real
//! cost replaces. So what is counted is what is stored. Sums are read when they are first needed, and then follow the
//! rows that this server writes. If several servers share the database, they are read again if they are older than
//! [`REREAD`], and once more after each reservation.

mod file;

pub(crate) use file::{Budget, Rules};

use crate::{
    clock::Clock,
    core::{
        budget::{Account, Admission, Amount, Limit, Period},
        usage_row::{UsageRow, UsageTokens},
    },
    metrics,
    store::{Error, SessionStore, UsageBy, UsageQuery},
};
use dashmap::DashMap;
use reseed_protocol::{SessionId, Timestamp};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};
use tokio::sync::Notify;

/// How old a sum may be if other servers store rows too.
const REREAD: Duration = Duration::from_secs(2);

/// Sums are split here: what is older is read only every three hours. No request takes so long.
const RECENT: i64 = 60 * 60 * 1_000;
const SPLIT_AGAIN: i64 = 3 * RECENT;

/// How long a request waits for others to be settled before it looks again by itself. Other servers' do not wake it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Maximum number of accounts and of users' classes in memory. Accounts without requests in progress are read again.
const KEPT_MAX: usize = 50_000;

/// Whose a budget is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Whose {
    /// One user's.
    User(String),
    /// One session's.
    Session(SessionId),
    /// That of all users together.
    Deployment,
}

impl Whose {
    /// Returns the kind, for labels and messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Session(_) => "session",
            Self::Deployment => "deployment",
        }
    }
}

type Key = (Whose, Period);

/// A sum in memory.
struct Sum {
    account: Account,
    /// The start of its period.
    start: Timestamp,
    /// Rows from here on are read again.
    split: Timestamp,
    /// The sum of the rows before.
    old: Amount,
    /// When it was read, by the clock that does not step.
    read_at: Duration,
}

/// A budget that has reached one of its shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) whose: Whose,
    pub(crate) per: Period,
    /// 80 or 100.
    pub(crate) percent: u64,
    /// When it is filled again; `None` if it never is.
    pub(crate) refills_at: Option<Timestamp>,
}

/// Why a request may not be sent.
#[derive(Debug)]
pub(crate) enum Refused {
    /// A budget is used up.
    Exhausted(Notice),
    /// The sums could not be read, or the reservation could not be stored.
    Store(Error),
}

/// A budget with what is used of it, for operators.
#[derive(Debug, Clone)]
pub(crate) struct Used {
    pub(crate) whose: Whose,
    pub(crate) budget: Budget,
    pub(crate) spent: Amount,
    pub(crate) reserved: Amount,
    pub(crate) refills_at: Option<Timestamp>,
}

/// The budgets of a server.
pub(crate) struct Budgets {
    rules: RwLock<Arc<Rules>>,
    /// The classes that users' tokens name.
    claimed: DashMap<String, String>,
    sums: Mutex<HashMap<Key, Sum>>,
    settled: Notify,
    store: Arc<dyn SessionStore>,
    clock: Arc<dyn Clock>,
    /// True if other servers store rows too.
    is_shared: bool,
}

impl Budgets {
    pub(crate) fn new(rules: Rules, store: Arc<dyn SessionStore>, clock: Arc<dyn Clock>, is_shared: bool) -> Self {
        Self {
            rules: RwLock::new(Arc::new(rules)),
            claimed: DashMap::new(),
            sums: Mutex::default(),
            settled: Notify::new(),
            store,
            clock,
            is_shared,
        }
    }

    /// Replaces the rules. What was spent counts against the new ones. Requests that wait look again.
    pub(crate) fn replace(&self, rules: Rules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
        self.settled.notify_waiters();
    }

    fn rules(&self) -> Arc<Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn sums(&self) -> MutexGuard<'_, HashMap<Key, Sum>> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the class that a user's token names, or that it names none.
    pub(crate) fn claims(&self, owner: &str, class: Option<&str>) {
        match class {
            None => drop(self.claimed.remove(owner)),
            Some(class) if self.claimed.len() < KEPT_MAX || self.claimed.contains_key(owner) => {
                self.claimed.insert(owner.to_owned(), class.to_owned());
            }
            Some(_) => {}
        }
    }

    /// Returns the class of a user.
    pub(crate) fn class_of(&self, owner: &str) -> Option<String> {
        let claimed = self.claimed.get(owner).map(|class| class.clone());
        self.rules().class_of(owner, claimed.as_deref()).map(str::to_owned)
    }

    /// Returns the budgets that hold for a session of this user; without a session, those of the user.
    fn budgets_of(&self, owner: &str, session: Option<&SessionId>) -> Vec<(Whose, Budget)> {
        let rules = self.rules();
        if rules.is_empty() {
            return Vec::new();
        }
        let class = self.class_of(owner);
        let of_user = class.iter().flat_map(|class| rules.of_class(class)).filter_map(|budget| {
            let whose = match (budget.per, session) {
                (Period::Session, None) => return None,
                (Period::Session, Some(session)) => Whose::Session(session.clone()),
                (Period::Day | Period::Month, _) => Whose::User(owner.to_owned()),
            };
            Some((whose, *budget))
        });
        let of_all = rules.deployment.iter().map(|budget| (Whose::Deployment, *budget));
        of_user.chain(of_all).collect()
    }

    /// Reserves a request by its estimate, and waits while others in progress may use up what is left. Returns whether
    /// a reservation was stored; there is none if no budget holds.
    ///
    /// # Errors
    /// [`Refused`]: the request may not be sent.
    pub(crate) async fn reserve(&self, row: &UsageRow) -> Result<bool, Refused> {
        loop {
            let budgets = self.budgets_of(&row.owner, Some(&row.session));
            if budgets.is_empty() {
                return Ok(false);
            }
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            for (whose, budget) in &budgets {
                self.refresh(whose, budget.per).await.map_err(Refused::Store)?;
            }
            match self.admit(row, &budgets) {
                (Admission::Free, _) if self.store_reservation(row, &budgets).await? => return Ok(true),
                // Another server was faster. Both may have given way, so they do not look again at the same moment.
                (Admission::Free, _) => tokio::time::sleep(LOOK_AGAIN.mul_f64(fastrand::f64())).await,
                (Admission::Wait, _) => drop(tokio::time::timeout(LOOK_AGAIN, settled).await),
                (Admission::Exhausted, notice) => {
                    metrics::BUDGET_REFUSALS_TOTAL.add([notice.whose.kind(), notice.per.as_str()], 1);
                    return Err(Refused::Exhausted(notice));
                }
            }
        }
    }

    /// Stores the reservation of a request that was admitted. If other servers store theirs too, looks once more, and
    /// returns false if it has to give way to them.
    async fn store_reservation(&self, row: &UsageRow, budgets: &[(Whose, Budget)]) -> Result<bool, Refused> {
        if let Err(error) = self.store.add_usage(vec![row.clone()]).await {
            // It may be stored nevertheless. Then it counts once the sums are read again.
            self.each_sum_of(row, |account| account.withdraw(&row.id));
            self.settled.notify_waiters();
            return Err(Refused::Store(error));
        }
        self.written(std::slice::from_ref(row));
        if !self.is_shared {
            return Ok(true);
        }
        let mut is_admitted = true;
        for (whose, budget) in budgets {
            self.read(whose, budget.per, Duration::ZERO).await.map_err(Refused::Store)?;
            let sums = self.sums();
            let sum = sums.get(&(whose.clone(), budget.per));
            is_admitted &= sum.is_none_or(|sum| sum.account.still_admits(&row.id, &budget.limit));
        }
        if !is_admitted {
            let nothing = UsageRow { tokens: UsageTokens::default(), cost_nano_usd: Some(0), ..row.clone() };
            self.each_sum_of(row, |account| account.settle(&row.id, Amount::default()));
            self.store.add_usage(vec![nothing.clone()]).await.map_err(Refused::Store)?;
            self.written(std::slice::from_ref(&nothing));
        }
        Ok(is_admitted)
    }

    /// Reserves the request in every account, if every one admits it.
    fn admit(&self, row: &UsageRow, budgets: &[(Whose, Budget)]) -> (Admission, Notice) {
        let now = self.clock.now();
        let mut sums = self.sums();
        let mut verdict = (Admission::Free, None);
        for (whose, Budget { per, limit }) in budgets {
            let Some(sum) = sums.get(&(whose.clone(), *per)) else { continue };
            match (sum.account.admits(limit), verdict.0) {
                (Admission::Exhausted, first) if first != Admission::Exhausted => {
                    verdict = (Admission::Exhausted, Some((whose, *per)));
                }
                (Admission::Wait, Admission::Free) => verdict = (Admission::Wait, Some((whose, *per))),
                _ => {}
            }
        }
        if verdict.0 == Admission::Free {
            for (whose, Budget { per, .. }) in budgets {
                if let Some(sum) = sums.get_mut(&(whose.clone(), *per)) {
                    sum.account.reserve(&row.id, Amount::of(row));
                }
            }
        }
        let (whose, per) = verdict.1.unwrap_or((&Whose::Deployment, Period::Day));
        (verdict.0, Notice { whose: whose.clone(), per, percent: 100, refills_at: per.end(now) })
    }

    /// Settles a request by what it cost. Returns the budgets that have reached a share of which their users are told.
    pub(crate) fn settle(&self, row: &UsageRow) -> Vec<Notice> {
        let (budgets, now) = (self.budgets_of(&row.owner, Some(&row.session)), self.clock.now());
        let (mut sums, mut notices) = (self.sums(), Vec::new());
        for (whose, Budget { per, limit }) in budgets {
            let Some(sum) = sums.get_mut(&(whose.clone(), per)).filter(|sum| sum.start == per.start(now)) else {
                continue;
            };
            sum.account.spend(&row.id, Amount::of(row));
            if let Some(percent) = sum.account.to_tell(&limit) {
                notices.push(Notice { whose: whose.clone(), per, percent, refills_at: per.end(now) });
            }
            if whose == Whose::Deployment {
                let share = limit.used_percent(sum.account.spent()) as f64 / 100.0;
                metrics::BUDGET_USED_RATIO.set([per.as_str()], share);
            }
        }
        drop(sums);
        self.settled.notify_waiters();
        for Notice { whose, per, percent, refills_at } in &notices {
            metrics::BUDGET_NOTICES_TOTAL.add([whose.kind(), if *percent < 100 { "80" } else { "100" }], 1);
            tracing::warn!(
                budget = whose.kind(),
                per = per.as_str(),
                percent,
                session = %row.session,
                user = row.owner,
                refills_at = refills_at.map(tracing::field::display),
                "a budget has reached a share of its limit"
            );
        }
        notices
    }

    /// Returns true if a request is reserved and not settled.
    pub(crate) fn has_reserved(&self, row: &UsageRow) -> bool {
        let budgets = self.budgets_of(&row.owner, Some(&row.session));
        let sums = self.sums();
        let has = |(whose, Budget { per, .. }): (Whose, Budget)| {
            sums.get(&(whose, per)).is_some_and(|sum| sum.account.has_open(&row.id))
        };
        budgets.into_iter().any(has)
    }

    /// Notes that rows were stored.
    pub(crate) fn written(&self, rows: &[UsageRow]) {
        for row in rows {
            self.each_sum_of(row, |account| account.written(&row.id, Amount::of(row)));
        }
    }

    fn each_sum_of(&self, row: &UsageRow, change: impl Fn(&mut Account)) {
        let budgets = self.budgets_of(&row.owner, Some(&row.session));
        let mut sums = self.sums();
        for (whose, Budget { per, .. }) in budgets {
            if let Some(sum) = sums.get_mut(&(whose, per)) {
                change(&mut sum.account);
            }
        }
    }

    /// Reads a sum that is missing, of an earlier period, or too old.
    async fn refresh(&self, whose: &Whose, per: Period) -> Result<(), Error> {
        self.read(whose, per, REREAD).await
    }

    /// As [`Self::refresh`]; a sum that other servers may have changed may be this old.
    async fn read(&self, whose: &Whose, per: Period, age_max: Duration) -> Result<(), Error> {
        let (now, key) = (self.clock.now(), (whose.clone(), per));
        let start = per.start(now);
        let recent = {
            let sums = self.sums();
            match sums.get(&key).filter(|sum| sum.start == start) {
                Some(sum) if !self.is_shared || self.clock.elapsed() < sum.read_at + age_max => return Ok(()),
                Some(sum) => {
                    let is_split = now.0.saturating_sub(sum.split.0) < SPLIT_AGAIN;
                    Some((is_split.then_some((sum.split, sum.old)), sum.account.written_ids()))
                }
                None => None,
            }
        };
        let read_at = self.clock.elapsed();
        let (split, written) = recent.map_or((None, Vec::new()), |(split, written)| (split, written));
        let (split, old) = match split {
            Some(known) => known,
            None => {
                let split = Timestamp(start.0.max(now.0.saturating_sub(RECENT)));
                (split, self.sum(whose, Some(start), Some(split)).await?)
            }
        };
        let stored = old.and(self.sum(whose, Some(split), None).await?);
        let mut sums = self.sums();
        match sums.get_mut(&key).filter(|sum| sum.start == start) {
            Some(sum) => {
                sum.account.reread(stored, &written);
                (sum.split, sum.old, sum.read_at) = (split, old, read_at);
            }
            None => {
                if sums.len() >= KEPT_MAX {
                    sums.retain(|_, sum| !sum.account.is_quiet());
                }
                let mut account = Account::loaded(stored, self.is_shared);
                // Whoever was told before a restart is not told again.
                for limit in self.limits_of(whose, per) {
                    let _ = account.to_tell(&limit);
                }
                sums.insert(key, Sum { account, start, split, old, read_at });
            }
        }
        Ok(())
    }

    /// Returns the limits of this budget, if its owner is known from it.
    fn limits_of(&self, whose: &Whose, per: Period) -> Vec<Limit> {
        let budgets = match whose {
            Whose::User(owner) => self.budgets_of(owner, None),
            Whose::Deployment => self.rules().deployment.iter().map(|budget| (Whose::Deployment, *budget)).collect(),
            Whose::Session(_) => Vec::new(),
        };
        let same = budgets.into_iter().filter(|(owner, budget)| owner == whose && budget.per == per);
        same.map(|(_, budget)| budget.limit).collect()
    }

    async fn sum(&self, whose: &Whose, from: Option<Timestamp>, to: Option<Timestamp>) -> Result<Amount, Error> {
        let (owner, session) = match whose {
            Whose::User(owner) => (Some(owner.clone()), None),
            Whose::Session(session) => (None, Some(session.clone())),
            Whose::Deployment => (None, None),
        };
        let query = UsageQuery { by: UsageBy::Total, from, to, owner, session, cursor: None, limit: 1 };
        let page = self.store.usage_sums(query).await?;
        let sum = page.items.into_iter().next().unwrap_or_default();
        Ok(Amount { nano_usd: sum.cost_nano_usd.saturating_add(sum.estimated_nano_usd), tokens: sum.tokens.total() })
    }

    /// Returns the budgets of the deployment, or of a user and of the deployment, with what is used of them.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn used(&self, owner: Option<&str>) -> Result<Vec<Used>, Error> {
        let budgets = match owner {
            Some(owner) => self.budgets_of(owner, None),
            None => self.rules().deployment.iter().map(|budget| (Whose::Deployment, *budget)).collect(),
        };
        let mut used = Vec::new();
        for (whose, budget) in budgets {
            self.refresh(&whose, budget.per).await?;
            let sums = self.sums();
            let Some(sum) = sums.get(&(whose.clone(), budget.per)) else { continue };
            let (spent, total) = (sum.account.spent(), sum.account.total());
            let refills_at = budget.per.end(self.clock.now());
            used.push(Used { whose, budget, spent, reserved: total.without(spent), refills_at });
        }
        Ok(used)
    }
}
