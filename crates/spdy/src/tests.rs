use std::time::Duration;

use bytes::{BufMut, BytesMut};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::frame::{Decoder, Event, Frame, INITIAL_WINDOW_SIZE, encode_data_head};
use crate::zlib::Deflate;
use crate::{
    Connection, Error, FlowControl, Headers, OpenError, ResetStatus, Role, Settings, Stream, connect,
};

type Running = JoinHandle<Result<(), Error>>;

fn start(io: DuplexStream, role: Role, settings: Settings) -> (Connection, Running) {
    let (connection, driver) = connect(io, role, settings);
    (connection, tokio::spawn(driver))
}

/// A client and a server, and their drivers.
fn pair(settings: Settings) -> (Connection, Connection, Running, Running) {
    let (near, far) = duplex(8 << 10);
    let (client, client_driver) = start(near, Role::Client, settings);
    let (server, server_driver) = start(far, Role::Server, settings);
    (client, server, client_driver, server_driver)
}

/// A stream, from both ends.
async fn stream(client: &Connection, server: &Connection, headers: Headers) -> (Stream, Stream) {
    let accepting = async { server.accept().await.unwrap().accept() };
    let (opened, accepted) = tokio::join!(client.open(headers), accepting);
    (opened.unwrap(), accepted)
}

/// A peer that speaks frames, for what no connection of ours would send.
struct Peer {
    io: DuplexStream,
    deflate: Deflate,
    decoder: Decoder,
    input: BytesMut,
}

impl Peer {
    fn new(io: DuplexStream) -> Self {
        Self { io, deflate: Deflate::default(), decoder: Decoder::default(), input: BytesMut::new() }
    }

    async fn send(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut self.deflate, &mut bytes);
        self.io.write_all(&bytes).await.unwrap();
    }

    async fn send_data(&mut self, stream: u32, data: &[u8]) {
        let mut bytes = BytesMut::new();
        encode_data_head(stream, data.len(), false, &mut bytes);
        bytes.put_slice(data);
        self.io.write_all(&bytes).await.unwrap();
    }

    async fn receive(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.decoder.next(&mut self.input).unwrap() {
                return Some(event);
            }
            if self.io.read_buf(&mut self.input).await.unwrap() == 0 {
                return None;
            }
        }
    }

    async fn open(&mut self, stream: u32) {
        self.send(Frame::SynStream { stream, headers: Headers::new(), is_last: false, is_one_way: false })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_and_headers_go_both_ways() {
    let (client, server, ..) = pair(Settings::default());
    let headers = Headers::new().with("streamType", "stdin");
    let (mut near, mut far) = stream(&client, &server, headers.clone()).await;
    assert_eq!(far.headers(), headers);
    near.write_all(b"question").await.unwrap();
    near.shutdown().await.unwrap();
    let mut question = String::new();
    far.read_to_string(&mut question).await.unwrap();
    assert_eq!(question, "question");
    far.write_all(b"answer").await.unwrap();
    far.shutdown().await.unwrap();
    let mut answer = String::new();
    near.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer", "a stream that was shut down for writing is still read");
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_with_its_last_stream() {
    let (client, server, client_driver, server_driver) = pair(Settings::default());
    let (mut near, mut far) = stream(&client, &server, Headers::new()).await;
    drop(client);
    assert!(server_driver.is_finished() == client_driver.is_finished());
    far.write_all(b"late").await.unwrap();
    far.shutdown().await.unwrap();
    drop(far);
    let mut late = String::new();
    near.read_to_string(&mut late).await.unwrap();
    assert_eq!(late, "late");
    drop(near);
    client_driver.await.unwrap().unwrap();
    server.ended().await;
    assert!(server.accept().await.is_none());
    assert_eq!(server.open(Headers::new()).await.err(), Some(OpenError::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_refused_stream_is_an_error_of_its_opener() {
    let (client, server, ..) = pair(Settings::default());
    let refusing = async { server.accept().await.unwrap().refuse() };
    let (opened, ()) = tokio::join!(client.open(Headers::new()), refusing);
    assert_eq!(opened.err(), Some(OpenError::Refused));
    let (_near, _far) = stream(&client, &server, Headers::new()).await;
}

#[tokio::test(start_paused = true)]
async fn data_before_a_reset_is_read() {
    let (near, far) = duplex(8 << 10);
    let (client, _driver) = start(near, Role::Client, Settings::default());
    let mut peer = Peer::new(far);
    let serving = async {
        let opened = peer.receive().await;
        assert!(matches!(opened, Some(Event::Control(Frame::SynStream { stream: 1, .. }))), "{opened:?}");
        peer.send(Frame::SynReply { stream: 1, headers: Headers::new(), is_last: false }).await;
        peer.send_data(1, b"exit code 7").await;
        peer.send(Frame::Reset { stream: 1, status: ResetStatus::CANCEL }).await;
    };
    let (mut opened, ()) = tokio::join!(async { client.open(Headers::new()).await.unwrap() }, serving);
    sleep(Duration::from_secs(1)).await;
    let mut read = Vec::new();
    let end = opened.read_to_end(&mut read).await;
    assert_eq!(read, b"exit code 7");
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_stream_is_reset() {
    let (client, server, ..) = pair(Settings::default());
    let (near, mut far) = stream(&client, &server, Headers::new()).await;
    drop(near);
    let error = far.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(far.write_all(b"x").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_with_its_connection_is_cut_off() {
    let (client, server, client_driver, _server_driver) = pair(Settings::default());
    let (mut near, mut far) = stream(&client, &server, Headers::new()).await;
    far.write_all(b"half").await.unwrap();
    let mut half = [0; 4];
    near.read_exact(&mut half).await.unwrap();
    client_driver.abort();
    for stream in [&mut near, &mut far] {
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
        assert_eq!(stream.write_all(b"x").await.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_holds_back_its_sender_and_no_other_stream() {
    let (client, server, ..) = pair(Settings::default());
    let (mut slow, mut slow_far) = stream(&client, &server, Headers::new()).await;
    let (mut quick, mut quick_far) = stream(&client, &server, Headers::new()).await;
    // Once a window was reported, the sender keeps to windows.
    slow_far.write_all(&[0; 40 << 10]).await.unwrap();
    slow.read_exact(&mut [0; 40 << 10]).await.unwrap();
    let sending = tokio::spawn(async move { slow_far.write_all(&vec![1; 1 << 20]).await.map(|()| slow_far) });
    sleep(Duration::from_secs(1)).await;
    assert!(!sending.is_finished(), "there is no room for 1 MiB");
    let (sent, mut received) = (vec![2; 200 << 10], vec![0; 200 << 10]);
    let passing = async { tokio::try_join!(quick_far.write_all(&sent), quick.read_exact(&mut received)) };
    timeout(Duration::from_secs(5), passing).await.expect("the other stream goes on").unwrap();
    slow.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
    sending.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_peer_without_windows_is_neither_waited_for_nor_trusted() {
    let (near, far) = duplex(4 << 10);
    let (server, _driver) = start(near, Role::Server, Settings::default());
    let mut peer = Peer::new(far);
    peer.open(1).await;
    let mut accepted = server.accept().await.unwrap().accept();
    // 1 MiB without a single WINDOW_UPDATE of the peer.
    let sending = tokio::spawn(async move {
        accepted.write_all(&vec![7; 1 << 20]).await.unwrap();
        accepted
    });
    let mut received = 0;
    while received < 1 << 20 {
        if let Some(Event::Data { data, .. }) = peer.receive().await {
            received += data.len();
        }
    }
    let mut accepted = sending.await.unwrap();
    // The peer sends more than the buffer holds: it has to wait, until someone reads.
    let pushing = tokio::spawn(async move {
        peer.send_data(1, &vec![8; 1 << 20]).await;
        peer
    });
    sleep(Duration::from_secs(1)).await;
    assert!(!pushing.is_finished());
    accepted.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
    let mut peer = pushing.await.unwrap();
    let update = peer.receive().await.unwrap();
    assert!(matches!(update, Event::Control(Frame::WindowUpdate { .. })), "{update:?}");
}

/// A client, its stream 1, and the peer, which has sent 1 MiB that the client has read.
async fn reader(flow_control: FlowControl) -> (Connection, Stream, Peer) {
    let (near, far) = duplex(64 << 10);
    let (client, _driver) = start(near, Role::Client, Settings { flow_control, ..Settings::default() });
    let mut peer = Peer::new(far);
    let answering = async {
        let opened = peer.receive().await;
        assert!(matches!(opened, Some(Event::Control(Frame::SynStream { stream: 1, .. }))), "{opened:?}");
        peer.send(Frame::SynReply { stream: 1, headers: Headers::new(), is_last: false }).await;
    };
    let (opened, ()) = tokio::join!(client.open(Headers::new()), answering);
    let (mut opened, sent, mut received) = (opened.unwrap(), vec![7; 1 << 20], vec![0; 1 << 20]);
    let ((), read) = tokio::join!(peer.send_data(1, &sent), opened.read_exact(&mut received));
    read.unwrap();
    (client, opened, peer)
}

#[tokio::test(start_paused = true)]
async fn a_peer_without_windows_is_sent_no_reports_unless_they_are_offered() {
    let (_client, _opened, mut peer) = reader(FlowControl::Answered).await;
    assert!(timeout(Duration::from_secs(1), peer.receive()).await.is_err(), "nothing is reported");
    peer.send(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 64 << 10)])).await;
    let mut reported = Vec::new();
    while let Ok(Some(Event::Control(Frame::WindowUpdate { stream, delta }))) =
        timeout(Duration::from_secs(1), peer.receive()).await
    {
        reported.push((stream, delta));
    }
    reported.sort_unstable();
    assert_eq!(reported, [(0, 1 << 20), (1, 1 << 20)]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_was_read_before_the_peer_kept_windows_goes_on() {
    let (near, far) = duplex(8 << 10);
    let answered = Settings { flow_control: FlowControl::Answered, ..Settings::default() };
    let (client, _client_driver) = start(near, Role::Client, answered);
    let (server, _server_driver) = start(far, Role::Server, Settings::default());
    let (mut output, mut output_far) = stream(&client, &server, Headers::new()).await;
    let (mut input, mut input_far) = stream(&client, &server, Headers::new()).await;
    let (sent, mut received) = (vec![1; 200 << 10], vec![0; 200 << 10]);
    let passing = async { tokio::try_join!(output_far.write_all(&sent), output.read_exact(&mut received)) };
    passing.await.unwrap();
    // The server reports what it reads, so both sides keep windows from here on.
    let (question, mut asked) = (vec![2; 64 << 10], vec![0; 64 << 10]);
    let asking = async { tokio::try_join!(input.write_all(&question), input_far.read_exact(&mut asked)) };
    asking.await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let passing = async { tokio::try_join!(output_far.write_all(&sent), output.read_exact(&mut received)) };
    timeout(Duration::from_secs(5), passing).await.expect("the server may send").unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_flow_control_nothing_is_reported_and_no_window_is_honoured() {
    let (_client, mut opened, mut peer) = reader(FlowControl::None).await;
    peer.send(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 10)])).await;
    peer.send(Frame::WindowUpdate { stream: 1, delta: 10 }).await;
    assert!(timeout(Duration::from_secs(1), peer.receive()).await.is_err(), "nothing is reported");
    opened.write_all(&[8; 100]).await.unwrap();
    let mut arrived = 0;
    while let Ok(Some(Event::Data { data, .. })) = timeout(Duration::from_secs(1), peer.receive()).await {
        arrived += data.len();
    }
    assert_eq!(arrived, 100);
}

#[tokio::test(start_paused = true)]
async fn an_announced_window_is_honoured() {
    let (near, far) = duplex(1 << 20);
    let (server, _driver) = start(near, Role::Server, Settings::default());
    let mut peer = Peer::new(far);
    peer.send(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 10)])).await;
    peer.open(1).await;
    let mut accepted = server.accept().await.unwrap().accept();
    accepted.write_all(&[1; 25]).await.unwrap();
    let mut sizes = Vec::new();
    for _ in 0..3 {
        let mut received = 0;
        while let Ok(Some(event)) = timeout(Duration::from_secs(1), peer.receive()).await {
            if let Event::Data { data, .. } = event {
                received += data.len();
            }
        }
        sizes.push(received);
        peer.send(Frame::WindowUpdate { stream: 1, delta: 10 }).await;
    }
    assert_eq!(sizes, [10, 10, 5]);
}

#[tokio::test(start_paused = true)]
async fn streams_are_limited_in_both_directions() {
    let settings = Settings { streams: 2, ..Settings::default() };
    let (client, server, ..) = pair(settings);
    let _first = stream(&client, &server, Headers::new()).await;
    let second = stream(&client, &server, Headers::new()).await;
    assert_eq!(client.open(Headers::new()).await.err(), Some(OpenError::TooMany));
    drop(second);
    sleep(Duration::from_millis(1)).await;
    let _third = stream(&client, &server, Headers::new()).await;

    let (near, far) = duplex(1 << 10);
    let (_server, _driver) = start(near, Role::Server, settings);
    let mut peer = Peer::new(far);
    for stream in [1, 3, 5] {
        peer.open(stream).await;
    }
    let refused = Frame::Reset { stream: 5, status: ResetStatus::REFUSED_STREAM };
    assert_eq!(peer.receive().await, Some(Event::Control(refused)));
}

#[tokio::test(start_paused = true)]
async fn pings_are_answered_and_a_flood_of_them_is_bounded() {
    let (near, far) = duplex(256);
    let (_server, driver) = start(near, Role::Server, Settings::default());
    let mut peer = Peer::new(far);
    peer.send(Frame::Ping(7)).await;
    assert_eq!(peer.receive().await, Some(Event::Control(Frame::Ping(7))));
    let mut flood = BytesMut::new();
    (0..100_000).for_each(|_| Frame::Ping(9).encode(&mut Deflate::default(), &mut flood));
    // Never reads what comes back.
    let flooding = timeout(Duration::from_secs(60), peer.io.write_all(&flood));
    assert!(flooding.await.is_err(), "the server stops reading");
    drop(peer);
    assert!(driver.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends_and_pings_keep_one_open() {
    let idle = Settings { idle_timeout: Some(Duration::from_secs(60)), ..Settings::default() };
    let (_client, _server, client_driver, _) = pair(idle);
    let ended = timeout(Duration::from_secs(61), client_driver).await.expect("it ends").unwrap();
    assert!(matches!(ended, Err(Error::Idle)), "{ended:?}");

    let kept = Settings { ping_period: Some(Duration::from_secs(20)), ..idle };
    let (client, server, client_driver, _server_driver) = pair(kept);
    sleep(Duration::from_secs(3600)).await;
    assert!(!client_driver.is_finished());
    let _stream = stream(&client, &server, Headers::new()).await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_goes_away_refuses_what_it_has_not_seen() {
    let (near, far) = duplex(4 << 10);
    let (client, driver) = start(near, Role::Client, Settings::default());
    let mut peer = Peer::new(far);
    let opening = tokio::spawn(async move { client.open(Headers::new()).await.err() });
    peer.receive().await.unwrap();
    peer.send(Frame::GoAway { last_stream: 0, status: 0 }).await;
    assert_eq!(opening.await.unwrap(), Some(OpenError::Refused));
    driver.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_violation_ends_the_connection_with_an_explanation() {
    let (near, far) = duplex(4 << 10);
    let (server, driver) = start(near, Role::Server, Settings::default());
    let mut peer = Peer::new(far);
    peer.io.write_all(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff]).await.unwrap();
    assert_eq!(peer.receive().await, Some(Event::Control(Frame::GoAway { last_stream: 0, status: 1 })));
    assert!(matches!(driver.await.unwrap(), Err(Error::Protocol(_))));
    server.ended().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a peer sends, the driver ends or waits for more, and never panics.
    #[test]
    fn any_peer_is_survived(pieces in prop::collection::vec(any_piece(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (near, far) = duplex(1 << 20);
            let (connection, driver) = start(near, Role::Server, Settings { streams: 4, ..Settings::default() });
            let accepting = tokio::spawn(async move {
                while let Some(incoming) = connection.accept().await {
                    let mut stream = incoming.accept();
                    tokio::spawn(async move {
                        let (mut from, mut to) = tokio::io::split(&mut stream);
                        _ = tokio::io::copy(&mut from, &mut to).await;
                    });
                }
            });
            let mut peer = Peer::new(far);
            for piece in pieces {
                match piece {
                    Piece::Frame(frame) => peer.send(frame).await,
                    Piece::Data(stream, data) => peer.send_data(stream, &data).await,
                    Piece::Bytes(bytes) => _ = peer.io.write_all(&bytes).await,
                }
                tokio::task::yield_now().await;
                if driver.is_finished() {
                    break;
                }
            }
            drop(peer);
            _ = driver.await.expect("it does not panic");
            accepting.await.expect("it does not panic");
        });
    }
}

#[derive(Clone, Debug)]
enum Piece {
    Frame(Frame),
    Data(u32, Vec<u8>),
    Bytes(Vec<u8>),
}

fn any_piece() -> impl Strategy<Value = Piece> {
    let stream = 0..8_u32;
    let data = prop::collection::vec(any::<u8>(), 0..2000);
    let opened = (stream.clone(), any::<bool>(), any::<bool>()).prop_map(|(stream, is_last, is_one_way)| {
        Frame::SynStream { stream: stream.max(1), headers: Headers::new(), is_last, is_one_way }
    });
    let reset =
        stream.clone().prop_map(|stream| Frame::Reset { stream: stream.max(1), status: ResetStatus::CANCEL });
    let update =
        (stream.clone(), any::<u32>()).prop_map(|(stream, delta)| Frame::WindowUpdate { stream, delta });
    let reply = stream.clone().prop_map(|stream| Frame::SynReply {
        stream: stream.max(1),
        headers: Headers::new(),
        is_last: true,
    });
    let settings = prop::collection::vec((0..9_u32, any::<u32>()), 0..3).prop_map(Frame::Settings);
    let goodbye = stream.clone().prop_map(|last_stream| Frame::GoAway { last_stream, status: 0 });
    prop_oneof![
        4 => opened.prop_map(Piece::Frame),
        1 => prop_oneof![reset, update, reply, settings, any::<u32>().prop_map(Frame::Ping)].prop_map(Piece::Frame),
        4 => (1..8_u32, data).prop_map(|(stream, data)| Piece::Data(stream, data)),
        1 => prop_oneof![
            goodbye.prop_map(Piece::Frame),
            prop::collection::vec(any::<u8>(), 0..30).prop_map(Piece::Bytes),
        ],
    ]
}

#[tokio::test(start_paused = true)]
async fn what_a_peer_sent_before_it_closed_is_read_even_if_it_can_be_sent_nothing() {
    let (near, far) = duplex(8 << 10);
    let (client, driver) = connect(near, Role::Client, Settings::default());
    let mut driver = Box::pin(driver);
    let mut peer = Peer::new(far);
    let opening = async {
        let accepting = async {
            peer.send(Frame::SynReply { stream: 1, headers: Headers::new(), is_last: false }).await;
            peer.send(Frame::SynReply { stream: 3, headers: Headers::new(), is_last: false }).await;
        };
        let opened = tokio::join!(client.open(Headers::new()), client.open(Headers::new()), accepting);
        (opened.0.unwrap(), opened.1.unwrap())
    };
    let (mut outcome, output) = tokio::select! {
        opened = opening => opened,
        _ = &mut driver => panic!("it goes on"),
    };
    peer.send_data(1, b"exit code 7").await;
    drop(peer);
    // A reset has to be written, and can not be.
    drop(output);
    assert!(matches!(driver.await, Err(Error::Io(_))));
    let mut text = [0; 11];
    outcome.read_exact(&mut text).await.expect("it was received");
    assert_eq!(&text, b"exit code 7");
}
