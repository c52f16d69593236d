//! Tests providers against known bytes, and whole configurations, including KMS plugins.

mod kms;
mod providers;
mod reload;

use std::path::Path;
use std::sync::Arc;

use setpoint_clock::{Clock, Rng};

use crate::{
    Context, Encryption, GroupResource, LoadError, Opened, Options, Purpose, TransformError, Transformer,
    Transformers,
};

/// Builds a configuration with these entries of `resources`.
fn configuration(resources: &str) -> String {
    format!("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{resources}")
}

/// Returns a 32-byte secret, identified by its first byte.
fn secret(name: char) -> String {
    use base64::Engine;
    base64::prelude::BASE64_STANDARD.encode(name.to_string().repeat(32))
}

fn options(file: &Path) -> Options {
    let (file, server) = (file.to_owned(), "server".to_owned());
    Options { file, reload: true, server, clock: clock(), rng: Rng::seeded(1) }
}

fn clock() -> Clock {
    Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap())
}

/// Loads a configuration from a temporary file.
async fn load(text: &str) -> Result<Encryption, LoadError> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    std::fs::write(&file, text).unwrap();
    Encryption::load(options(&file)).await
}

/// Builds a configuration for Secrets with these providers.
fn secrets_with(providers: &[&str]) -> String {
    let providers: String = providers.iter().map(|provider| format!("  - {provider}\n")).collect();
    configuration(&format!("- resources: [secrets]\n  providers:\n{providers}"))
}

fn keys(provider: &str, names: &[char]) -> String {
    let keys: Vec<_> =
        names.iter().map(|name| format!("{{name: {name}, secret: {}}}", secret(*name))).collect();
    format!("{provider}: {{keys: [{}]}}", keys.join(", "))
}

/// A location at which values are stored.
struct Place {
    resource: GroupResource,
    path: String,
}

impl Place {
    fn of(resource: &str, path: &str) -> Self {
        Self { resource: GroupResource::parse(resource), path: path.to_owned() }
    }

    fn context(&self) -> Context<'_> {
        Context { resource: &self.resource, path: &self.path }
    }

    fn transformer(&self, encryption: &Encryption) -> Arc<dyn Transformer> {
        encryption.transformer(&self.resource)
    }

    fn seal(&self, encryption: &Encryption, data: &str) -> Result<Vec<u8>, TransformError> {
        let mut out = Vec::new();
        let transformer = self.transformer(encryption);
        let key = transformer.encrypt(data.as_bytes(), &self.context(), Purpose::Write, &mut out)?;
        assert!(!transformer.is_stale(key.as_ref()), "what has just been written is not stale");
        Ok(out)
    }

    async fn open(&self, encryption: &Encryption, stored: &[u8]) -> Result<Opened, TransformError> {
        let transformer = self.transformer(encryption);
        let opened = transformer.decrypt(stored, &self.context()).await?;
        assert_eq!(opened.stale, transformer.is_stale(opened.key.as_ref()), "both say the same");
        Ok(opened)
    }

    /// Encrypts a value, and expects to decrypt the same value.
    async fn round_trip(&self, encryption: &Encryption, data: &str) -> Vec<u8> {
        let stored = self.seal(encryption, data).unwrap();
        let opened = self.open(encryption, &stored).await.unwrap();
        assert_eq!((opened.data, opened.stale), (data.as_bytes().to_vec(), false));
        stored
    }
}

fn secret_a() -> Place {
    Place::of("secrets", "/registry/secrets/default/a")
}

fn starts_with(stored: &[u8], prefix: &str) -> bool {
    stored.starts_with(prefix.as_bytes())
}
