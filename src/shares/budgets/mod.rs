//! Budgets of users, sessions and the deployment.
//!
//! A request is reserved before it is sent: its estimate is stored as a row of the operator's account, which its real
//! cost replaces. So what is counted is what is stored. Sums are read when they are first needed, and then follow the
//! rows that this server writes. If several servers share the database, they are read again if they are older than
//! [`REREAD`], and once more after each reservation. If it is uncertain whether a sum includes a row that was just
//! being stored, the row counts twice.

mod file;

pub(crate) use file::{Budget, Rules};

use crate::{
    clock::Clock,
    core::{
        budget::{Account, Admission, Amount, Limit, Period},
        usage_row::{UsagePurpose, UsageRow, UsageTokens},
    },
    metrics,
    store::{Error, SessionStore, UsageBy, UsageQuery},
};
use dashmap::DashMap;
use reseed_protocol::{SessionId, Timestamp};
use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};
use tokio::sync::Notify;

/// How old a sum may be if other servers store rows too.
const REREAD: Duration = Duration::from_secs(2);

/// Sums are split here: what is older is read only every three hours. No request takes so long.
const RECENT: i64 = 60 * 60 * 1_000;
const SPLIT_AGAIN: i64 = 3 * RECENT;

/// How long a request waits for others to be settled in all. Answers take minutes at most, so a reservation that is
/// open for longer is a fault, which must not hold up others indefinitely.
const WAIT_MAX: Duration = Duration::from_secs(10 * 60);

/// How many sums may be read at a time. Two reads of the same sum never overlap.
const READS: usize = 64;

/// How long a request waits for others to be settled before it looks again by itself. Other servers' do not wake it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Maximum number of accounts, of users' classes and of rows to be stored in memory. Accounts without requests in
/// progress are read again.
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

impl Sum {
    /// Returns what a row counts for in this period. What a request cost is of the period in which it ended.
    fn part_of(&self, per: Period, row: &UsageRow) -> Amount {
        if per.start(row.at) == self.start { Amount::of(row) } else { Amount::default() }
    }
}

/// The sums in memory.
#[derive(Default)]
struct Known {
    sums: HashMap<Key, Sum>,
    /// The rows of settled requests that are not known to be stored, by their ids: a sum that is read may lack them.
    unwritten: BTreeMap<String, UsageRow>,
}

impl Known {
    /// Returns the rows that are not known to be stored, and belong to an account.
    fn unwritten_of(&self, key: &Key, start: Timestamp) -> BTreeMap<String, UsageRow> {
        let own = |row: &UsageRow| key.1.start(row.at) == start && keys_of(row).contains(key);
        self.unwritten.iter().filter(|(_, row)| own(row)).map(|(id, row)| (id.clone(), row.clone())).collect()
    }
}

/// Returns the keys of all accounts in which a request may be, whatever budgets hold for it.
fn keys_of(row: &UsageRow) -> [Key; 5] {
    let user = || Whose::User(row.owner.clone());
    [
        (user(), Period::Day),
        (user(), Period::Month),
        (Whose::Session(row.session.clone()), Period::Session),
        (Whose::Deployment, Period::Day),
        (Whose::Deployment, Period::Month),
    ]
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
    known: Mutex<Known>,
    /// Each is held while a sum is read, by the hash of its key.
    reads: [tokio::sync::Mutex<()>; READS],
    hashes: RandomState,
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
            known: Mutex::default(),
            reads: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
            hashes: RandomState::new(),
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

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Forgets a user who was deleted.
    pub(crate) fn forget(&self, owner: &str) {
        self.claimed.remove(owner);
        self.known().sums.retain(|(whose, _), _| !matches!(whose, Whose::User(user) if user == owner));
    }

    /// Returns the class of a user.
    pub(crate) fn class_of(&self, owner: &str) -> Option<String> {
        let claimed = self.claimed.get(owner).map(|class| class.clone());
        self.rules().class_of(owner, claimed.as_deref()).map(str::to_owned)
    }

    /// Returns the class of a user for rules that may name classes without budgets. `None` if it is not known: only the
    /// tokens of an identity provider name it, and the user has not been here since the start.
    pub(crate) fn known_class(&self, owner: &str, has_claims: bool) -> Option<String> {
        let claimed = self.claimed.get(owner).map(|class| class.clone());
        if let Some(class) = self.rules().named(owner, claimed.as_deref()) {
            return Some(class.to_owned());
        }
        let is_signed = owner.contains('|') && !owner.starts_with("service:");
        (!(has_claims && is_signed)).then(|| file::DEFAULT.to_owned())
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
    /// a reservation was stored; there is none if no budget holds. A request that only fills the cache does not wait.
    ///
    /// # Errors
    /// [`Refused`]: the request may not be sent.
    pub(crate) async fn reserve(&self, row: &UsageRow) -> Result<bool, Refused> {
        let wait_max = if row.purpose == UsagePurpose::Prewarm { Duration::ZERO } else { WAIT_MAX };
        let until = self.clock.elapsed() + wait_max;
        loop {
            // The period may have changed during a wait.
            let row = &UsageRow { at: self.clock.now(), ..row.clone() };
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
            let (admission, notice) = self.admit(row, &budgets);
            let is_over = admission == Admission::Wait && self.clock.elapsed() >= until;
            if is_over || admission == Admission::Exhausted {
                metrics::BUDGET_REFUSALS_TOTAL.add([notice.whose.kind(), notice.per.as_str()], 1);
                return Err(Refused::Exhausted(notice));
            }
            match admission {
                Admission::Free if self.store_reservation(row, &budgets).await? => return Ok(true),
                // Another server was faster. Both may have given way, so they do not look again at the same moment.
                Admission::Free => tokio::time::sleep(LOOK_AGAIN.mul_f64(fastrand::f64())).await,
                Admission::Wait | Admission::Exhausted => drop(tokio::time::timeout(LOOK_AGAIN, settled).await),
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
            let known = self.known();
            let sum = known.sums.get(&(whose.clone(), budget.per));
            is_admitted &= sum.is_none_or(|sum| sum.account.still_admits(&row.id, &budget.limit));
        }
        if !is_admitted {
            let nothing = UsageRow { tokens: UsageTokens::default(), cost_nano_usd: Some(0), ..row.clone() };
            self.store.add_usage(vec![nothing.clone()]).await.map_err(Refused::Store)?;
            self.written(std::slice::from_ref(&nothing));
        }
        Ok(is_admitted)
    }

    /// Reserves the request in every account, if every one admits it.
    fn admit(&self, row: &UsageRow, budgets: &[(Whose, Budget)]) -> (Admission, Notice) {
        let now = self.clock.now();
        let mut known = self.known();
        let sums = &mut known.sums;
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

    /// Settles a request by what it cost. Returns the budgets whose users must be told about their use. If
    /// it cost nothing, its reservation stays until that is stored.
    pub(crate) fn settle(&self, row: &UsageRow) -> Vec<Notice> {
        if Amount::of(row) == Amount::default() {
            return Vec::new();
        }
        let (budgets, now) = (self.budgets_of(&row.owner, Some(&row.session)), self.clock.now());
        let (mut known, mut notices) = (self.known(), Vec::new());
        if known.unwritten.len() < KEPT_MAX {
            known.unwritten.insert(row.id.clone(), row.clone());
        }
        for (whose, per) in keys_of(row) {
            let Some(sum) = known.sums.get_mut(&(whose.clone(), per)) else { continue };
            let cost = sum.part_of(per, row);
            let budget = budgets.iter().find(|(owner, budget)| *owner == whose && budget.per == per);
            // A request that is not reserved here is added, unless other servers' rows have to be read anyway.
            if per.start(row.at) == sum.start && (budget.is_some() || !self.is_shared) {
                sum.account.spend(&row.id, cost);
            } else {
                sum.account.settle(&row.id, cost);
            }
            let Some((_, Budget { limit, .. })) = budget.filter(|_| sum.start == per.start(now)) else { continue };
            if let Some(percent) = sum.account.to_tell(limit) {
                notices.push(Notice { whose: whose.clone(), per, percent, refills_at: per.end(now) });
            }
            if whose == Whose::Deployment {
                let share = limit.used_percent(sum.account.spent()) as f64 / 100.0;
                metrics::BUDGET_USED_RATIO.set([per.as_str()], share);
            }
        }
        drop(known);
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
        let known = self.known();
        keys_of(row).iter().any(|key| known.sums.get(key).is_some_and(|sum| sum.account.has_open(&row.id)))
    }

    /// Notes that rows were stored. Requests that cost nothing are settled by that.
    pub(crate) fn written(&self, rows: &[UsageRow]) {
        let mut known = self.known();
        for row in rows {
            if known.unwritten.get(&row.id) == Some(row) {
                known.unwritten.remove(&row.id);
            }
            for key in keys_of(row) {
                let Some(sum) = known.sums.get_mut(&key) else { continue };
                if Amount::of(row) == Amount::default() {
                    sum.account.settle(&row.id, Amount::default());
                }
                let amount = sum.part_of(key.1, row);
                sum.account.written(&row.id, amount);
            }
        }
        drop(known);
        self.settled.notify_waiters();
    }

    /// Notes that rows could not be stored and never will be. What is stored of their requests counts.
    pub(crate) fn lost(&self, rows: &[UsageRow]) {
        for row in rows {
            self.each_sum_of(row, |account| account.keep(&row.id));
        }
        self.settled.notify_waiters();
    }

    /// Changes every account that may contain a request, whatever the rules say by now.
    fn each_sum_of(&self, row: &UsageRow, change: impl Fn(&mut Account)) {
        let mut known = self.known();
        for key in keys_of(row) {
            if let Some(sum) = known.sums.get_mut(&key) {
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
        let (asked_at, key) = (self.clock.elapsed(), (whose.clone(), per));
        // One that is in memory needs no turn.
        if self.is_fresh(&key, age_max, asked_at) {
            return Ok(());
        }
        let at = self.hashes.hash_one(&key) as usize % READS;
        let _reading = self.reads[at].lock().await;
        if self.is_fresh(&key, age_max, asked_at) {
            return Ok(());
        }
        let (now, read_at) = (self.clock.now(), self.clock.elapsed());
        let start = per.start(now);
        let (recent, unwritten) = {
            let known = self.known();
            let recent = known.sums.get(&key).filter(|sum| sum.start == start).map(|sum| {
                let is_split = now.0.saturating_sub(sum.split.0) < SPLIT_AGAIN;
                (is_split.then_some((sum.split, sum.old)), sum.account.written_ids())
            });
            let unwritten = if recent.is_some() { BTreeMap::new() } else { known.unwritten_of(&key, start) };
            (recent, unwritten)
        };
        let (split, written) = recent.map_or((None, Vec::new()), |(split, written)| (split, written));
        let (split, old) = match split {
            Some(known) => known,
            None => {
                let split = Timestamp(start.0.max(now.0.saturating_sub(RECENT)));
                (split, self.sum(whose, Some(start), Some(split)).await?)
            }
        };
        let stored = old.and(self.sum(whose, Some(split), None).await?);
        let mut known = self.known();
        match known.sums.get_mut(&key).filter(|sum| sum.start == start) {
            Some(sum) => {
                sum.account.reread(stored, &written);
                (sum.split, sum.old, sum.read_at) = (split, old, read_at);
            }
            None => {
                if known.sums.len() >= KEPT_MAX {
                    known.sums.retain(|_, sum| !sum.account.is_quiet());
                }
                let mut account = Account::loaded(stored, self.is_shared);
                let still_unwritten = known.unwritten_of(&key, start);
                for (id, row) in unwritten.iter().chain(&still_unwritten) {
                    account.spend(id, Amount::of(row));
                }
                // Rows that were stored during the read may be missing in it.
                for (id, row) in unwritten.iter().filter(|(id, _)| !still_unwritten.contains_key(*id)) {
                    account.written(id, Amount::of(row));
                }
                // Users who were told before a restart are not told again.
                for limit in self.limits_of(whose, per) {
                    let _ = account.to_tell(&limit);
                }
                known.sums.insert(key, Sum { account, start, split, old, read_at });
            }
        }
        Ok(())
    }

    /// Returns true if a sum need not be read: no other server changes it, or it is not too old, or its read began
    /// after it was asked for.
    fn is_fresh(&self, key: &Key, age_max: Duration, asked_at: Duration) -> bool {
        let start = key.1.start(self.clock.now());
        self.known().sums.get(key).filter(|sum| sum.start == start).is_some_and(|sum| {
            !self.is_shared || asked_at < sum.read_at || self.clock.elapsed() < sum.read_at + age_max
        })
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
        let query = UsageQuery { from, to, owner, session, limit: 1, by: UsageBy::Total, ..UsageQuery::default() };
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
            let known = self.known();
            let Some(sum) = known.sums.get(&(whose.clone(), budget.per)) else { continue };
            let (spent, total) = (sum.account.spent(), sum.account.total());
            let refills_at = budget.per.end(self.clock.now());
            used.push(Used { whose, budget, spent, reserved: total.without(spent), refills_at });
        }
        Ok(used)
    }
}
