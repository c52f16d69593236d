//! Bootstrap tokens: credentials of machines that join a cluster, stored as Secrets in `kube-system`.

use setpoint_token::{BOOTSTRAP_TYPE, BootstrapSecret, BootstrapToken};

use super::User;
use crate::facts::Facts;
use crate::json::Json;
use crate::server::Server;

const NAMESPACE: &str = "kube-system";

impl Server {
    /// Returns the user of a valid bootstrap token. An invalid one is ignored: another authenticator may accept it.
    pub(super) async fn bootstrap_user(&self, token: &str) -> Option<User> {
        let token = BootstrapToken::parse(token)?;
        let name = token.secret_name();
        let (served, record) = self.look_up("secrets", Some(NAMESPACE), &name).await?;
        let refuse = |why: &str| {
            tracing::debug!(secret = name, why, "rejected a bootstrap token");
        };
        if Facts::of(&record, &served).is_being_deleted() {
            refuse("its secret is being deleted");
            return None;
        }
        let secret = served.decode_bare(&record).ok()?;
        if secret.text("type") != BOOTSTRAP_TYPE {
            refuse("its secret has another type");
            return None;
        }
        let secret: BootstrapSecret = serde_json::from_value(secret).ok()?;
        match secret.authenticate(&token, self.now()) {
            Ok(groups) => Some(User { name: token.user(), groups, ..User::default() }),
            Err(why) => {
                refuse(why);
                None
            }
        }
    }
}
