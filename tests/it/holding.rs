//! What a node of a cluster leaves alone because another node is working on it: forks that are being made, and sessions
//! that are open although nothing was said in them.

use crate::support::scripted::Scripted;
use reseed::{
    config::LimitSettings,
    core::{agent_loop::Deployment, context::windows::Windows},
    hooks::Hooks,
    internals::{Clock, Keeper, Registry, RegistryOptions, settle_forks},
    store::{Error, ListQuery, NewNode, SessionStore, UNFINISHED, memory::MemoryStore},
    tools::Toolset,
};
use reseed_protocol::{ErrorCode, SessionId, Timestamp};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, advance};

const LEASE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_hours(1);

struct Elapsed(Instant);

impl Clock for Elapsed {
    fn now(&self) -> Timestamp {
        Timestamp(i64::try_from(self.elapsed().as_millis()).unwrap())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

fn node(name: &str) -> NewNode {
    NewNode { name: name.to_owned(), address: None, version: "0".to_owned(), lease: LEASE }
}

async fn registry(store: MemoryStore, began: Instant) -> (Arc<Registry>, Arc<Keeper>) {
    let store = Arc::new(store);
    let keeper = Keeper::start(store.clone(), node("b"), PATIENCE).await.unwrap().expect("the store is shared");
    let registry = Registry::new(RegistryOptions {
        store,
        provider: Arc::new(Scripted::new()),
        clock: Arc::new(Elapsed(began)),
        hooks: Hooks::default(),
        tools: Toolset::default(),
        deployment: Deployment {
            model: "test".into(),
            windows: Windows::new(Some(8_000), Vec::new()),
            ..Deployment::default()
        },
        limits: LimitSettings { sessions_open_max: 8, ..LimitSettings::default() },
        has_several_users: false,
        detached_turn: HOUR,
        host_away: HOUR,
        cluster: Some(keeper.clone()),
    });
    (registry, keeper)
}

fn id(text: &str) -> SessionId {
    text.parse().unwrap()
}

async fn stored(store: &MemoryStore) -> Vec<String> {
    let mut ids = Vec::new();
    for unfinished in [false, true] {
        let query = ListQuery { limit: 100, unfinished, ..ListQuery::default() };
        ids.extend(store.list(query).await.unwrap().items.into_iter().map(|head| head.session.to_string()));
    }
    ids.sort();
    ids
}

/// Lets time pass in steps, so that beats are in time.
async fn pass(time: Duration) {
    for _ in 0..time.as_millis() / 100 {
        advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_node_is_making_or_has_open_is_left_alone_until_it_is_gone() {
    let began = Instant::now();
    let at_a = MemoryStore::new();
    let (registry, keeper) = registry(at_a.another(), began).await;
    let a = Keeper::start(Arc::new(at_a.another()), node("watched"), PATIENCE).await.unwrap().unwrap();
    let cluster = at_a.cluster().unwrap();
    cluster.join(&node("a")).await.unwrap();
    at_a.create(&id("copy"), "ann", UNFINISHED).await.unwrap();
    at_a.create(&id("empty"), "ann", Timestamp(0)).await.unwrap();
    advance(HOUR + HOUR).await;
    // It beats only now and then, but it does.
    for _ in 0..3 {
        cluster.beat(reseed::store::Pulse::default()).await.unwrap().expect("it is a node");
        pass(LEASE - Duration::from_secs(2)).await;
        settle_forks(&registry).await.unwrap();
        assert_eq!(registry.sweep_empty().await.unwrap(), 0);
        assert_eq!(stored(&at_a).await, ["copy", "empty"]);
        let refused = registry.open(&id("empty"), "ann").await.unwrap_err();
        assert_eq!((refused.code, refused.retriable), (ErrorCode::Overloaded, true));
        let place = registry.locate(&id("empty"), "ann").await.unwrap();
        assert!(place.as_ref().is_some_and(|row| row.node.name == "a"), "{place:?}");
    }
    // Now it is silent, while the one that beats by itself is not.
    pass(LEASE * 2).await;
    assert_eq!(registry.locate(&id("empty"), "ann").await.unwrap(), None);
    assert_eq!(keeper.others().iter().map(|row| row.id).collect::<Vec<_>>(), [a.me()]);
    settle_forks(&registry).await.unwrap();
    assert_eq!(stored(&at_a).await, ["empty"]);
    assert_eq!(registry.sweep_empty().await.unwrap(), 1);
    assert_eq!(stored(&at_a).await, [""; 0]);
    // A paused node that wakes finds nothing that it could finish.
    let gone = at_a.open(&id("copy")).await.unwrap_err();
    assert_eq!(gone, Error::NotFound(id("copy")));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_removed_joins_again_and_holds_nothing() {
    let at_a = MemoryStore::new();
    let (registry, keeper) = registry(at_a.another(), Instant::now()).await;
    registry.keep_holding();
    let first = keeper.me();
    let handle = registry.create("ann").await.unwrap();
    assert!(registry.opened(&handle.id).is_some());
    let cluster = at_a.cluster().unwrap();
    let beat = cluster.nodes().await.unwrap()[0].beat;
    cluster.remove(&[reseed::store::Silent { node: first, beat }]).await.unwrap();
    pass(LEASE).await;
    assert_ne!(keeper.me(), first);
    // Its session was closed: nobody had it open when the node was another one.
    assert!(handle.snapshot().await.is_err());
    assert!(registry.opened(&handle.id).is_none());
    assert_eq!(registry.locate(&handle.id, "ann").await.unwrap(), None);
    registry.open(&handle.id, "ann").await.unwrap();
    assert!(registry.opened(&handle.id).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_removed_joins_again_as_soon_as_it_opens_or_creates_a_session() {
    let at_a = MemoryStore::new();
    let (registry, keeper) = registry(at_a.another(), Instant::now()).await;
    registry.keep_holding();
    let cluster = at_a.cluster().unwrap();
    at_a.create(&id("free"), "ann", Timestamp(0)).await.unwrap();
    let mut before_that = None;
    let began = Instant::now();
    for opens in [true, false] {
        let before = keeper.me();
        let beat = cluster.nodes().await.unwrap()[0].beat;
        cluster.remove(&[reseed::store::Silent { node: before, beat }]).await.unwrap();
        let handle = match opens {
            true => registry.open(&id("free"), "ann").await.unwrap(),
            false => registry.create("ann").await.unwrap(),
        };
        assert_ne!(keeper.me(), before);
        assert_eq!(at_a.head(&handle.id).await.unwrap().holder, Some(keeper.me()));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(handle.snapshot().await.is_ok(), "it stays open");
        if let Some(earlier) = before_that.replace(handle) {
            assert!(earlier.snapshot().await.is_err(), "what the node before had is closed");
        }
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "no beat was waited for");
}

#[tokio::test(start_paused = true)]
async fn what_a_node_that_is_gone_has_left_is_settled_and_swept() {
    let at_a = MemoryStore::new();
    let (registry, _keeper) = registry(at_a.another(), Instant::now()).await;
    let cluster = at_a.cluster().unwrap();
    cluster.join(&node("a")).await.unwrap();
    at_a.create(&id("copy"), "ann", UNFINISHED).await.unwrap();
    at_a.create(&id("empty"), "ann", Timestamp(0)).await.unwrap();
    // After it has left, only its number remains in the sessions that it held.
    cluster.leave().await.unwrap();
    pass(LEASE).await;
    settle_forks(&registry).await.unwrap();
    assert_eq!(stored(&at_a).await, ["empty"]);
    advance(HOUR + HOUR).await;
    assert_eq!(registry.sweep_empty().await.unwrap(), 1);
}
