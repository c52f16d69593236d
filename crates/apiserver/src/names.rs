//! Rules for object names.
//!
//! Each rule returns v1.34's messages; none means that the name is valid.

pub use setpoint_cel::names::*;

use crate::strategy::NameRule;

impl NameRule {
    /// Validates a name, or a prefix if the rest is to be generated.
    pub fn check(self, name: &str, is_prefix: bool) -> Messages {
        if self == Self::PathSegment {
            return if is_prefix { path_segment_prefix(name) } else { path_segment(name) };
        }
        if self == Self::Address {
            return crate::validation::address::strict_ip_messages(name);
        }
        let masked;
        let name = match is_prefix && name.len() > 1 && name.ends_with('-') {
            // A suffix will follow the dash; as in v1.34, `a` replaces the dash and the character before it.
            true => {
                let end = name.len() - if name.is_char_boundary(name.len() - 2) { 2 } else { 1 };
                masked = format!("{}a", &name[..end]);
                masked.as_str()
            }
            false => name,
        };
        match self {
            Self::Subdomain | Self::PathSegment | Self::Address => dns_subdomain(name),
            Self::Label => dns_label(name),
            Self::Label1035 => dns_1035_label(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_validated_by_the_rule_of_their_kind() {
        let check = |rule: NameRule, name: &str, fine: bool| {
            assert_eq!(rule.check(name, false).is_empty(), fine, "{rule:?} {name}");
        };
        for (name, subdomain, label, label_1035, segment) in [
            ("a", true, true, true, true),
            ("a-b.c", true, false, false, true),
            ("1a", true, true, false, true),
            ("a_b", false, false, false, true),
            ("A", false, false, false, true),
            ("a-", false, false, false, true),
            ("", false, false, false, true),
            ("..", false, false, false, false),
            ("a/b", false, false, false, false),
        ] {
            check(NameRule::Subdomain, name, subdomain);
            check(NameRule::Label, name, label);
            check(NameRule::Label1035, name, label_1035);
            check(NameRule::PathSegment, name, segment);
        }
        check(NameRule::Subdomain, &"a".repeat(253), true);
        check(NameRule::Subdomain, &"a".repeat(254), false);
    }

    #[test]
    fn a_prefix_may_end_in_a_dash() {
        assert!(NameRule::Subdomain.check("web-", true).is_empty());
        assert!(!NameRule::Subdomain.check("web-", false).is_empty());
        assert!(!NameRule::Subdomain.check("é-", true).is_empty());
    }

    #[test]
    fn label_keys_are_qualified_names() {
        for (key, complaints) in [
            ("app", 0),
            ("example.com/App_1", 0),
            ("/a", 1),
            ("a/", 2),
            ("a/b/c", 1),
            ("-a", 1),
            ("A.b/c", 1),
        ] {
            assert_eq!(qualified_name(key).len(), complaints, "{key}");
        }
    }
}
