//! The `legacy` audit log format: one line of text per event.

use std::fmt::Write;

use super::event::Event;

/// Formats the event as one line of text, without a line break.
pub(super) fn line(event: &Event) -> String {
    let none = || "<none>".to_owned();
    let user = &event.user;
    let (name, groups) = match user.username.as_str() {
        "" => (none(), none()),
        name if user.groups.is_empty() => (name.to_owned(), none()),
        name => (name.to_owned(), list(&user.groups)),
    };
    let (as_user, as_groups) = match &event.impersonated_user {
        None => ("<self>".to_owned(), "<lookup>".to_owned()),
        Some(user) if user.groups.is_empty() => (user.username.clone(), "<lookup>".to_owned()),
        Some(user) => (user.username.clone(), list(&user.groups)),
    };
    let namespace = event.object_ref.as_ref().map(|object| object.namespace.as_str());
    let namespace = namespace.filter(|namespace| !namespace.is_empty()).unwrap_or("<none>");
    let response = event.response_status.as_ref().map_or("<deferred>".to_owned(), |s| s.code.to_string());
    let ip = event.source_ips.first().map_or("<unknown>", String::as_str);
    let mut line = format!("{} AUDIT:", event.request_received_timestamp);
    for (key, value) in [
        ("id", event.audit_id.as_str()),
        ("stage", event.stage.name()),
        ("ip", ip),
        ("method", &event.verb),
        ("user", &name),
        ("groups", &groups),
        ("as", &as_user),
        ("asgroups", &as_groups),
        ("user-agent", &event.user_agent),
        ("namespace", namespace),
        ("uri", &event.request_uri),
        ("response", &response),
    ] {
        let _ = write!(line, " {key}={}", quoted(value));
    }
    line
}

fn list(texts: &[String]) -> String {
    texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(",")
}

/// Quotes text on one line: client input cannot start a line of its own.
fn quoted(text: &str) -> String {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::super::event::{ObjectReference, ResponseStatus, UserInfo};
    use super::*;
    use crate::auth::User;

    #[test]
    fn an_event_is_one_line_as_v1_34_writes_it() {
        let mut event = Event::new("id".into(), "2025-01-02T03:04:05.5Z".parse().unwrap());
        event.verb = "get".into();
        event.request_uri = "/a".into();
        event.user_agent = "two\nlines".into();
        assert_eq!(
            line(&event),
            "2025-01-02T03:04:05.5Z AUDIT: id=\"id\" stage=\"ResponseStarted\" ip=\"<unknown>\" method=\"get\" \
             user=\"<none>\" groups=\"<none>\" as=\"<self>\" asgroups=\"<lookup>\" user-agent=\"two\\nlines\" \
             namespace=\"<none>\" uri=\"/a\" response=\"<deferred>\""
        );
        event.user = UserInfo::from(&User::system("admin"));
        event.impersonated_user = Some(UserInfo { username: "jane".into(), ..UserInfo::default() });
        event.object_ref = Some(ObjectReference { namespace: "n".into(), ..ObjectReference::default() });
        event.response_status = Some(ResponseStatus { code: 200, ..ResponseStatus::default() });
        event.source_ips = vec!["10.0.0.1".into(), "10.0.0.2".into()];
        let text = line(&event);
        for part in [
            r#" ip="10.0.0.1""#,
            r#" user="admin" groups="\"system:masters\",\"system:authenticated\"""#,
            r#" as="jane" asgroups="<lookup>""#,
            r#" namespace="n""#,
            r#" response="200""#,
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
