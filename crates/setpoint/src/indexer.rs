//! Stage 4: the cache. One writer, many readers.

use std::sync::Arc;

use crate::Object;

/// The values under which an object is found in an index.
pub type IndexFn = Arc<dyn Fn(&Object) -> Vec<String> + Send + Sync>;
