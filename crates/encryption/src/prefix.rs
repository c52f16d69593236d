//! Selects a transformer by a value's prefix. The first one writes, and all of them read.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint_clock::Clock;

use crate::metrics::{Direction, Metrics};
use crate::{Context, KeyTag, Opened, Purpose, TransformError, Transformer};

/// A transformer and the prefix of the values it writes. The identity transformer has no prefix.
pub(crate) struct Prefixed {
    pub(crate) prefix: String,
    pub(crate) transformer: Arc<dyn Transformer>,
}

/// A non-empty list of transformers.
pub(crate) struct PrefixTransformers {
    first: Prefixed,
    rest: Vec<Prefixed>,
    /// The error for a value that no transformer matches.
    unmatched: &'static str,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl PrefixTransformers {
    /// Returns `None` if there are no transformers.
    pub(crate) fn new(
        transformers: Vec<Prefixed>,
        unmatched: &'static str,
        clock: &Clock,
        metrics: &Arc<Metrics>,
    ) -> Option<Self> {
        let mut transformers = transformers.into_iter();
        let first = transformers.next()?;
        let (clock, metrics) = (clock.clone(), metrics.clone());
        Some(Self { first, rest: transformers.collect(), unmatched, clock, metrics })
    }

    async fn read(&self, data: &[u8], context: &Context<'_>) -> Result<Opened, TransformError> {
        let start = self.clock.instant();
        let mut errors: Vec<TransformError> = Vec::new();
        let record = |prefix: &str, error: Option<&TransformError>| {
            self.metrics.transformed(
                context.resource,
                Direction::FromStorage,
                prefix,
                start.elapsed(),
                error,
            );
        };
        for (at, of) in std::iter::once(&self.first).chain(&self.rest).enumerate() {
            let Some(stripped) = data.strip_prefix(of.prefix.as_bytes()) else { continue };
            let result = of.transformer.decrypt(stripped, context).await;
            match (of.prefix.as_str(), result) {
                // Encrypted values are for the transformers after the identity.
                ("", Err(_)) => {}
                ("", Ok(opened)) => {
                    record("identity", None);
                    return Ok(Opened { stale: opened.stale || at != 0, ..opened });
                }
                (prefix, Ok(opened)) => {
                    record(prefix, None);
                    return Ok(Opened { stale: opened.stale || at != 0, ..opened });
                }
                // The same provider may appear again with another key.
                (prefix, Err(error)) => {
                    record(prefix, Some(&error));
                    errors.push(error);
                }
            }
        }
        Err(merged(errors).unwrap_or_else(|| {
            let error = TransformError::new(self.unmatched);
            record("unknown", Some(&error));
            error
        }))
    }
}

/// Merges errors into one, without duplicate messages.
fn merged(mut errors: Vec<TransformError>) -> Option<TransformError> {
    let code = errors.iter().find_map(|error| error.code);
    let mut texts: Vec<String> = Vec::new();
    for error in errors.drain(..) {
        if !texts.contains(&error.message) {
            texts.push(error.message);
        }
    }
    let message = match texts.len() {
        0 => return None,
        1 => texts.swap_remove(0),
        _ => format!("[{}]", texts.join(", ")),
    };
    Some(TransformError { message, code })
}

impl Transformer for PrefixTransformers {
    fn decrypt<'a>(
        &'a self,
        data: &'a [u8],
        context: &'a Context<'a>,
    ) -> BoxFuture<'a, Result<Opened, TransformError>> {
        self.read(data, context).boxed()
    }

    fn encrypt(
        &self,
        data: &[u8],
        context: &Context<'_>,
        purpose: Purpose,
        out: &mut Vec<u8>,
    ) -> Result<Option<KeyTag>, TransformError> {
        let start = self.clock.instant();
        let Prefixed { prefix, transformer } = &self.first;
        out.extend_from_slice(prefix.as_bytes());
        let result = transformer.encrypt(data, context, purpose, out);
        let error = result.as_ref().err();
        self.metrics.transformed(context.resource, Direction::ToStorage, prefix, start.elapsed(), error);
        result
    }

    fn is_stale(&self, key: Option<&KeyTag>) -> bool {
        self.first.transformer.is_stale(key)
    }
}
