//! Scripts that try to exhaust the stack, memory or CPU of the simulating process.

use futures::FutureExt;
use setpoint::Clock;

use super::tests::{now, shell};
use super::{Done, Input, Io, Output, Pace, Reckoning, Stop, UnknownCommands};
use crate::shell::parse;

/// The stack of a worker thread of tokio, four times: frames of test harnesses, which are not optimized, are that much
/// larger.
const STACK: usize = 4 * (2 << 20);

/// Runs a script in computed time on a worker's stack.
fn reckoned(script: String) -> Done {
    reckoned_within(100_000, script)
}

/// The same with a limit on its steps.
fn reckoned_within(steps: u64, script: String) -> Done {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        let mut shell = shell(Pace::Reckoned(Reckoning::endless(now(), steps)), UnknownCommands::Interactive);
        let list = parse(&script).expect("a script");
        shell.run(&list, &Io::null()).now_or_never().expect("nothing waits")
    });
    thread.expect("a thread").join().expect("no panic")
}

/// Runs a script as a client's command, in simulated time. Returns how long it rests, too.
async fn real(script: &str) -> (Done, std::time::Duration) {
    let clock = Clock::simulated(now());
    let mut shell = shell(Pace::Real(clock.clone()), UnknownCommands::Interactive);
    let list = parse(script).expect("a script");
    let started = clock.now();
    let done = shell.run(&list, &Io::null()).await;
    (done, clock.now().duration_since(started).try_into().expect("time passes"))
}

#[test]
fn commands_that_run_commands_are_nested_as_deep_as_calls() {
    for command in ["env ", "command ", "env command ", "exec env "] {
        assert_eq!(reckoned(format!("{}true", command.repeat(5000))), Ok(2), "{command}");
    }
    assert_eq!(reckoned(format!("{}true", "env command ".repeat(6))), Ok(0));
}

#[test]
fn the_deepest_nesting_fits_on_the_stack_of_a_worker() {
    let nested = |depth: usize, inner: &str| {
        format!("{}{inner}{}", "if true; then { ".repeat(depth / 2), "; }; fi".repeat(depth / 2))
    };
    // Each call nests as deep as the parser permits, until the run ends.
    let function = nested(20, "f; eval \"f\"");
    assert_eq!(reckoned(format!("f() {{ {function}; }}; f")), Ok(2));
    let script = nested(20, "sh /data/s");
    assert_eq!(reckoned(format!("cat > /data/s <<'EOF'\n{script}\nEOF\nsh /data/s")), Ok(2));
    // What is too deep ends only the innermost subshell.
    let substituted = nested(20, ": $(f)");
    assert_eq!(reckoned(format!("f() {{ {substituted}; }}; f")), Ok(0));
    assert_eq!(reckoned(format!("{}true{}", "(".repeat(17), ")".repeat(17))), Ok(2));
    assert_eq!(reckoned(format!("{}true{}", "(".repeat(16), ")".repeat(16))), Ok(0));
}

/// Each would take gigabytes.
#[tokio::test(start_paused = true)]
async fn a_command_expands_to_a_bounded_text() {
    let mega = "a=x; i=0; while [ $i -lt 18 ]; do a=$a$a; i=$((i+1)); done; ";
    let files = "i=0; while [ $i -lt 200 ]; do touch /data/$i; i=$((i+1)); done; cd /data; ";
    for script in [
        format!("set -- xxxxxxxxxx; {}", "set -- \"$@\" \"$@\"; ".repeat(40)),
        format!("{mega}: \"{}\"", "$a".repeat(10_000)),
        format!("{mega}: {}", "$a ".repeat(10_000)),
        format!("{mega}x=\"{}\"", "$a".repeat(10_000)),
        format!("{mega}{} true", (0..10_000).map(|at| format!("v{at}=$a ")).collect::<String>()),
        format!("{files}: {}", "* ".repeat(10_000)),
    ] {
        let shown = &script[script.len() - 40..];
        assert_eq!(reckoned(script.clone()), Err(Stop::Unknown), "{shown}");
        assert_eq!(real(&script).await.0, Err(Stop::Unknown), "{shown}");
    }
}

/// Each would take minutes in one step.
#[tokio::test(start_paused = true)]
async fn long_steps_count_as_many() {
    let long = "a=aaaaaaaa; i=0; while [ $i -lt 9 ]; do a=$a$a; i=$((i+1)); done; ";
    let pattern = "*a".repeat(400) + "b";
    for script in [
        format!("{long}while true; do : ${{a##{pattern}}}; done"),
        format!("{long}while true; do case $a in {pattern}) : ;; esac; done"),
        format!("{long}while true; do echo $a$a$a$a | grep -oE '.*[^a]|[a]'; done"),
        format!("{long}while true; do : {}; done", "/data/*x ".repeat(20_000)),
        format!("while true; do cp {}/data; done", "/config/a.conf ".repeat(20_000)),
        format!("while true; do tar cf /data/t {}; done", "/config ".repeat(500)),
        format!("while true; do mkdir -p /data/{0} /data/{0}; done", "d/".repeat(100)),
    ] {
        assert_eq!(reckoned_within(5_000, script.clone()), Err(Stop::Unknown), "{}", &script[..60]);
    }
    let cheap = real(&format!("{long}: ${{a##x}}")).await;
    let dear = real(&format!("{long}: ${{a##{pattern}}} ${{a##{pattern}}}")).await;
    assert_eq!((cheap.0, dear.0), (Ok(0), Ok(0)));
    assert!(dear.1 > cheap.1 + std::time::Duration::from_millis(30), "{:?} {:?}", cheap.1, dear.1);
}

#[test]
fn a_script_on_stdin_is_parsed_again_only_as_long_as_there_are_steps() {
    let mut shell = shell(Pace::Reckoned(Reckoning::endless(now(), 10_000)), UnknownCommands::Interactive);
    let (stdout, _) = Output::buffer();
    let stdin = Input::text(format!("{{\n{}", ":\n".repeat(100_000)));
    let io = Io { stdin, stdout, stderr: Output::Null, terminal: None };
    let list = parse("sh").expect("a script");
    assert_eq!(shell.run(&list, &io).now_or_never(), Some(Err(Stop::Unknown)));
}

#[test]
fn subshells_copy_variables_only_to_change_them() {
    let shell = shell(Pace::Reckoned(Reckoning::endless(now(), 10)), UnknownCommands::Interactive);
    let mut subshell = shell.forked().expect("few subshells");
    assert!(std::sync::Arc::ptr_eq(&shell.variables, &subshell.variables));
    subshell.set("N", "6".into()).expect("room");
    assert_eq!((shell.get("N"), subshell.get("N")), (Ok(Some("5")), Ok(Some("6"))));
}

#[test]
fn a_variable_that_is_unset_gives_back_its_room() {
    let round = "b=$a$a$a$a; unset b; i=$((i+1)); ";
    let script = format!("a=xxxxxxxxxxxxxxxx; i=0; while [ $i -lt 4000 ]; do {round}done");
    assert_eq!(reckoned(script), Ok(0));
    let kept = "i=0; while [ $i -lt 20000 ]; do export v$i=1; i=$((i+1)); done";
    assert_eq!(reckoned(kept.to_owned()), Ok(2));
    let unset = "i=0; while [ $i -lt 20000 ]; do export v$i=1; unset v$i; i=$((i+1)); done";
    assert_eq!(reckoned(unset.to_owned()), Ok(0));
}

#[test]
fn a_path_that_is_too_long_is_refused() {
    assert_eq!(reckoned(format!("mkdir -p /data/{}", "d/".repeat(3000))), Ok(1));
    assert_eq!(reckoned(format!("touch /data/{}", "d/".repeat(3000))), Ok(1));
}

#[test]
fn time_ends_with_the_calendar() {
    let reckoning = Reckoning::endless(jiff::Timestamp::MAX, 100);
    let mut shell = shell(Pace::Reckoned(reckoning), UnknownCommands::Interactive);
    let list = parse("sleep 60; touch /data/f; date").expect("a script");
    assert_eq!(shell.run(&list, &Io::null()).now_or_never(), Some(Ok(0)));
}
