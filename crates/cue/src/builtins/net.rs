//! Package `net`: addresses, host names, URL escapes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Args, Builtin};
use crate::eval::Res;
use crate::eval::value_of::Val;
use crate::label::quoted;

pub(super) const TABLE: &[Builtin] = &[
    Builtin::check("IP", 1, |args| test(args, |ip| ip.is_some())),
    Builtin::check("IPv4", 1, |args| test(args, |ip| matches!(ip, Some(IpAddr::V4(_))))),
    Builtin::check("IPv6", 1, |args| test(args, |ip| matches!(ip, Some(IpAddr::V6(_))))),
    Builtin::check("LoopbackIP", 1, |args| test(args, |ip| ip.is_some_and(|ip| ip.is_loopback()))),
    Builtin::check("MulticastIP", 1, |args| test(args, |ip| ip.is_some_and(|ip| ip.is_multicast()))),
    Builtin::check("UnspecifiedIP", 1, |args| test(args, |ip| ip.is_some_and(|ip| ip.is_unspecified()))),
    Builtin::check("IPCIDR", 1, |args| {
        let text = args.text(0)?;
        Ok(Val::bool(cidr(&text).is_some()))
    }),
    Builtin::check("FQDN", 1, |args| {
        let text = args.text(0)?;
        Ok(Val::bool(is_host_name(&text)))
    }),
    Builtin::new("IPString", 1, |args| {
        let text = args.text(0)?;
        match text.parse::<IpAddr>() {
            Ok(ip) => args.created(ip.to_string()),
            Err(_) => args.fail(format!("{} is not an IP address", quoted(&text))),
        }
    }),
    Builtin::new("JoinHostPort", 2, join),
    Builtin::new("SplitHostPort", 1, split),
    Builtin::new("PathEscape", 1, |args| escape(args, b"$&+:=@")),
    Builtin::new("QueryEscape", 1, |args| escape(args, b"")),
];

fn test(args: &mut Args<'_>, holds: fn(Option<IpAddr>) -> bool) -> Res<Val> {
    let text = args.text(0)?;
    Ok(Val::bool(holds(text.parse().ok())))
}

fn cidr(text: &str) -> Option<IpAddr> {
    let (address, bits) = text.split_once('/')?;
    let bits: u8 = bits.parse().ok()?;
    match address.parse::<IpAddr>().ok()? {
        IpAddr::V4(address) => (u32::from(bits) <= Ipv4Addr::BITS).then_some(IpAddr::V4(address)),
        IpAddr::V6(address) => (u32::from(bits) <= Ipv6Addr::BITS).then_some(IpAddr::V6(address)),
    }
}

fn is_host_name(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let ends = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
        label.len() <= 63
            && ends(label.chars().next())
            && ends(label.chars().last())
            && label.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_')
    };
    !name.is_empty() && name.len() <= 253 && name.split('.').all(is_label)
}

fn join(args: &mut Args<'_>) -> Res<Val> {
    let host = args.text(0)?;
    let port = match args.atom(1)? {
        crate::value::Atom::Text(text) => text.to_string(),
        other => other.to_string(),
    };
    args.created(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

fn split(args: &mut Args<'_>) -> Res<Val> {
    let text = args.text(0)?;
    let parts = match text.strip_prefix('[') {
        Some(rest) => rest.split_once("]:"),
        None => text.rsplit_once(':').filter(|(host, _)| !host.contains(':')),
    };
    match parts {
        Some((host, port)) => args.created_list([host.to_owned(), port.to_owned()]),
        None => args.fail(format!("{} is not host:port", quoted(&text))),
    }
}

fn escape(args: &mut Args<'_>, kept: &[u8]) -> Res<Val> {
    let text = args.text(0)?;
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte))
            }
            b' ' if kept.is_empty() => escaped.push('+'),
            byte if kept.contains(&byte) => escaped.push(char::from(byte)),
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    args.created(escaped)
}
