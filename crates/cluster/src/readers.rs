//! Checks that components may read what they share from the manager's caches.
//!
//! In v1.34, the scheduler and the kubelets have their own caches of what they may read. Here, one cache per kind
//! serves the whole process, with what the manager may read. To detect missing permissions nevertheless, what the other
//! components request is checked against their own permissions when the manager starts.

use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint::Runnable;
use setpoint::informer::RequestedKinds;
use setpoint_apiserver::auth::User;
use setpoint_apiserver::{ApiServer, Gvr, Selection};
use tokio_util::sync::CancellationToken;

use crate::Denials;

/// A runnable that checks once what each reader requested.
pub(crate) struct ReaderCheck {
    pub(crate) api: ApiServer,
    pub(crate) denials: Denials,
    pub(crate) readers: Vec<(User, RequestedKinds)>,
}

impl ReaderCheck {
    async fn check(&self, user: &User, requested: &RequestedKinds) {
        for (kind, selection) in requested.all() {
            let gvr = Gvr::new(kind.group(), kind.version(), kind.plural());
            let choice =
                Selection { namespace: selection.namespace, fields: selection.fields, ..Default::default() };
            for verb in ["list", "watch"] {
                if self.api.may_read(user, verb, &gvr, &choice).await.is_err() {
                    self.denials.note(user, &format!("{verb} {kind}"));
                }
            }
        }
    }
}

impl Runnable for ReaderCheck {
    fn name(&self) -> &str {
        "reader-check"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        async move {
            for (user, requested) in &self.readers {
                self.check(user, requested).await;
            }
            stop.cancelled().await;
        }
        .boxed()
    }
}
