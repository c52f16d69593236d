//! Bugs that controllers of Kubernetes once had, to be put back on purpose: whoever tests must notice.
//!
//! What always holds:
//! - without the feature `historic`, which only tests turn on, no bug is ever there and the compiler knows it;
//! - with it, a bug is there on the thread that asked for it and as long as it asked: a simulation runs on one.

/// A bug, and what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Pods are created before the cache shows those that were created already.
    ExpectationsIgnored,
    /// A create that failed is waited for as if it had succeeded.
    ExpectationsKeptAfterFailure,
    /// All of many creates are tried though the first one shows that they are refused.
    CreatesAllAtOnce,
    /// Orphans are adopted for an owner that only the cache still knows (kubernetes/kubernetes#42639).
    AdoptionFromCache,
    /// Pods that have ended count as running, and are not replaced.
    EndedPodsCounted,
    /// A set that shrinks gives up pods that are ready before those that are not.
    ReadyPodsFirst,
    /// A rollout counts the pods that sets should have as available.
    RolloutTrustsSizes,
    /// A set of the same name ends a rollout for good (kubernetes/kubernetes#29735).
    CollisionNotCounted,
    /// A pod is counted again while the cache still shows its finalizer (kubernetes/kubernetes#105200).
    JobPodsCountedTwice,
    /// Pods of a Job that is gone keep their finalizer (kubernetes/kubernetes#108645).
    JobFinalizersForgotten,
    /// A Job tries once more than its limit.
    BackoffLimitOffByOne,
    /// A set does not wait for one ordinal before it creates the next.
    OrdinalsAllAtOnce,
    /// A set updates the ordinals below its partition too.
    PartitionIgnored,
    /// After more than a hundred missed times nothing is started any more (kubernetes/kubernetes#42649).
    MissedTimesRefused,
    /// Jobs are named after when they were made, so that one more is made after a crash.
    JobsNamedAfterNow,
    /// A daemon is started beside one that has not left yet.
    DaemonBesideLeaving,
    /// An owner that leaves its dependents behind goes before they are released.
    OrphansForgotten,
    /// An owner that waits for its dependents does not.
    ForegroundNotAwaited,
    /// Slices are made again that the cache does not show yet (kubernetes/kubernetes#100033).
    SlicesCreatedTwice,
    /// A namespace goes while something is left in it.
    NamespaceLetGoEarly,
    /// Pods whose eviction was granted still count as healthy.
    GrantedEvictionsForgotten,
    /// A Job whose time was prolonged goes because the cache does not show it.
    ExpiryFromCache,
    /// An autoscaler gives up pods as soon as they have less to do.
    ScaleDownAtOnce,
    /// The room of a pod whose binding is under way is given away again.
    RoomNotAssumed,
    /// Pods make room for others that are no more important.
    EqualsPreempted,
}

#[cfg(feature = "historic")]
thread_local! {
    static PRESENT: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Whether a bug is there.
#[cfg(feature = "historic")]
pub fn has(bug: Bug) -> bool {
    PRESENT.get() == Some(bug)
}

/// Whether a bug is there: none is.
#[cfg(not(feature = "historic"))]
pub const fn has(_bug: Bug) -> bool {
    false
}

/// Runs something with a bug.
#[cfg(feature = "historic")]
pub fn with<T>(bug: Bug, run: impl FnOnce() -> T) -> T {
    struct Healed;
    impl Drop for Healed {
        fn drop(&mut self) {
            PRESENT.set(None);
        }
    }
    PRESENT.set(Some(bug));
    let _healed = Healed;
    run()
}
