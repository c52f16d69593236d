//! Watches: the changes of a selection, and their framing.
//!
//! A watcher is a cursor into the store's history. A slow watcher eventually falls behind the history and is cut off
//! with an error event; nothing is buffered for it.

mod convert;
mod form;
mod recent;
mod records;
mod stream;

use std::time::Duration;

use http::{Response, StatusCode};
use setpoint_store::Revision;

use self::form::Form;
pub(crate) use self::recent::Recent;
pub use self::records::{ChangeKind, RecordWatch};
use self::stream::{Plan, WatchStream};
use super::{Call, list, respond};
use crate::body::Body;
use crate::kind::Verb;
use crate::metrics::{OpenWatch, Scope};
use crate::options::ListOptions;
use crate::selector::ParsedSelection;
use crate::status::Status;
use crate::websocket;

pub(crate) async fn watch(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let options = ListOptions::parse(call.query, call.namespace, true)?;
    let choice = list::choose(call, &options)?;
    let in_messages = websocket::is_request(call.headers);
    let form = Form::of(call, in_messages)?;
    let (media_type, is_text) = (form.media_type(), form.is_text());
    let revision = list::parse_revision(&options.resource_version).map_err(Status::unknown)?;
    let body = match begin(call, &options, choice, revision).await {
        Ok((watch, plan)) => {
            Body::stream(WatchStream::new(watch, plan, form, call.server.clock.clone()), None)
        }
        // Once the options are valid, errors are sent as watch events, not as the response status.
        Err(status) => {
            let mut only = Vec::new();
            form.error(&mut only, &status);
            Body::full(only)
        }
    };
    Ok(match in_messages {
        true => websocket::respond(call.headers, body, is_text),
        false => respond::response(StatusCode::OK, media_type, body),
    })
}

async fn begin(
    call: &Call<'_>,
    options: &ListOptions,
    choice: ParsedSelection,
    revision: Option<Revision>,
) -> Result<(RecordWatch, Plan), Status> {
    let named = revision.unwrap_or(0);
    let sends_initial = options.send_initial_events == Some(true);
    let is_old_style = sends_initial && call.query.get("sendInitialEvents").is_none();
    let mut initial = Vec::new();
    let from = match (sends_initial, options.send_initial_events, named) {
        (true, _, _) => {
            let least = if options.resource_version.is_empty() { latest(call).await? } else { named };
            list::wait_for(call, least).await?;
            let range = choice.range(call.served);
            let page = call.server.store.list(&range, setpoint_store::ListOptions::default()).await;
            let page = page.map_err(|why| call.server.refusal(why))?;
            initial = match call.served.is_converted_by_webhook() {
                // They are selected after conversion.
                true => page.records,
                false => choice.select_records(page.records, call.served).await,
            };
            page.revision
        }
        // Starts at the current revision.
        (false, Some(false), 0) => {
            let newest = latest(call).await?;
            list::wait_for(call, newest).await?;
            call.server.store.revision()
        }
        // Does not wait for a future version: the watch stays silent until that version has passed.
        (false, _, named) => named.min(call.server.store.revision()),
    };
    let watch = call.server.watch(call.served.clone(), choice, from)?;
    let initial = watch.initial(initial);
    let open = OpenWatch::new(call.served.clone(), Scope::of(Verb::Watch, call.namespace, call.name));
    let pending_end_of_initial = (sends_initial && !is_old_style && options.bookmarks).then_some(from);
    let plan = Plan {
        open,
        initial,
        pending_end_of_initial,
        after: if sends_initial { 0 } else { named },
        watch_duration: watch_duration(call, options),
        bookmarks: options.bookmarks,
    };
    Ok((watch, plan))
}

/// Returns the newest revision. The watch has to wait for it if other servers are ahead of this one.
async fn latest(call: &Call<'_>) -> Result<Revision, Status> {
    Ok(call.latest().await?.unwrap_or_else(|| call.server.store.revision()))
}

/// Returns the duration of a watch: what the client asks for or, as in v1.34, a random one between the server's
/// minimum and twice that.
fn watch_duration(call: &Call<'_>, options: &ListOptions) -> Duration {
    match options.timeout_seconds.filter(|seconds| *seconds != 0) {
        // More than a year means forever, a negative value ends the watch immediately.
        Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(365 * 24 * 3600)),
        None => call.server.min_request_timeout.mul_f64(1.0 + call.server.rng.fraction()),
    }
}
