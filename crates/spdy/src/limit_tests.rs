//! The memory that a peer can make a connection use.

use crate::frame::{Frame, INITIAL_WINDOW_SIZE, StreamId};
use crate::settings::{OWN_BUFFER, SHARED_BUFFER};
use crate::slot::Inbound;
use crate::state::State;
use crate::{Headers, ResetStatus, Role, Settings};

fn state() -> State {
    State::new(Role::Server, Settings::default())
}

fn open(state: &mut State, stream: StreamId, headers: Headers) {
    state.receive(Frame::SynStream { stream, headers, is_last: false, is_one_way: false });
}

#[test]
fn a_stream_with_long_headers_is_refused() {
    let mut state = state();
    open(&mut state, 1, Headers::new().with("name", "x".repeat(4000)));
    open(&mut state, 3, Headers::new().with("name", "x".repeat(5000)));
    assert_eq!(state.streams.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(state.take_arrived(), Some(1));
    assert_eq!(state.take_arrived(), None);
}

#[test]
fn streams_that_no_one_reads_hold_a_bounded_number_of_bytes_together() {
    let mut state = state();
    let (window, streams) = (vec![0; 64 << 10], 200);
    for stream in (0..streams).map(|number| 2 * number + 1) {
        open(&mut state, stream, Headers::new());
        for piece in window.chunks(8 << 10) {
            assert!(state.receive_data(stream, piece, false), "none is full");
        }
    }
    let held: usize = state.streams.values().map(|slot| slot.inbox.len()).sum();
    assert!(held <= SHARED_BUFFER + streams as usize * OWN_BUFFER, "{held}");
    let first = &state.streams[&1];
    assert_eq!((first.inbox.len(), first.inbound), (window.len(), Inbound::Open));
    let last = &state.streams[&(2 * streams - 1)];
    assert_eq!((last.inbox.len(), last.inbound), (0, Inbound::Reset(ResetStatus::INTERNAL_ERROR)));
    open(&mut state, 2 * streams + 1, Headers::new());
    assert!(state.receive_data(2 * streams + 1, &window[..1024], false));
    assert_eq!(state.streams[&(2 * streams + 1)].inbox.len(), 1024, "a little is always taken");
}

#[test]
fn only_the_last_value_of_a_setting_counts() {
    let mut state = state();
    open(&mut state, 1, Headers::new());
    let before = state.streams[&1].window;
    state.receive(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 1), (4, 9), (INITIAL_WINDOW_SIZE, 100_000)]));
    assert_eq!(state.streams[&1].window - before, 100_000 - (64 << 10));
}
