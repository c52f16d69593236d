//! The signatures of all functions.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::types::{Type, split};

/// An overload of a function. The first parameter of a method is its target.
#[derive(Debug)]
pub(super) struct Overload {
    pub(super) is_method: bool,
    pub(super) params: Vec<Type>,
    pub(super) result: Type,
}

/// `function(params) -> result`, or `.function(target, params) -> result` for methods.
const SIGNATURES: &str = "
!_(bool) -> bool
-_(int) -> int
-_(double) -> double
_&&_(bool, bool) -> bool
_||_(bool, bool) -> bool
_?_:_(bool, A, A) -> A
@not_strictly_false(bool) -> bool
_==_(A, A) -> bool
_!=_(A, A) -> bool
_+_(int, int) -> int
_+_(uint, uint) -> uint
_+_(double, double) -> double
_+_(string, string) -> string
_+_(bytes, bytes) -> bytes
_+_(list(A), list(A)) -> list(A)
_+_(timestamp, duration) -> timestamp
_+_(duration, timestamp) -> timestamp
_+_(duration, duration) -> duration
_-_(int, int) -> int
_-_(uint, uint) -> uint
_-_(double, double) -> double
_-_(timestamp, timestamp) -> duration
_-_(timestamp, duration) -> timestamp
_-_(duration, duration) -> duration
_*_(int, int) -> int
_*_(uint, uint) -> uint
_*_(double, double) -> double
_/_(int, int) -> int
_/_(uint, uint) -> uint
_/_(double, double) -> double
_%_(int, int) -> int
_%_(uint, uint) -> uint
@in(A, list(A)) -> bool
@in(A, map(A, B)) -> bool
_[_](list(A), int) -> A
_[_](map(A, B), A) -> B
_[_](optional(list(A)), int) -> optional(A)
_[_](optional(map(A, B)), A) -> optional(B)
_[?_](list(A), int) -> optional(A)
_[?_](map(A, B), A) -> optional(B)
_[?_](optional(list(A)), int) -> optional(A)
_[?_](optional(map(A, B)), A) -> optional(B)
size(string) -> int
size(bytes) -> int
size(list(A)) -> int
size(map(A, B)) -> int
.size(string) -> int
.size(bytes) -> int
.size(list(A)) -> int
.size(map(A, B)) -> int
bool(bool) -> bool
bool(string) -> bool
int(int) -> int
int(uint) -> int
int(double) -> int
int(string) -> int
int(timestamp) -> int
int(duration) -> int
uint(uint) -> uint
uint(int) -> uint
uint(double) -> uint
uint(string) -> uint
double(double) -> double
double(int) -> double
double(uint) -> double
double(string) -> double
string(string) -> string
string(bool) -> string
string(int) -> string
string(uint) -> string
string(double) -> string
string(bytes) -> string
string(timestamp) -> string
string(duration) -> string
string(net.IP) -> string
string(net.CIDR) -> string
bytes(bytes) -> bytes
bytes(string) -> bytes
duration(duration) -> duration
duration(string) -> duration
duration(int) -> duration
timestamp(timestamp) -> timestamp
timestamp(string) -> timestamp
timestamp(int) -> timestamp
dyn(A) -> dyn
type(A) -> type(A)
matches(string, string) -> bool
.matches(string, string) -> bool
.contains(string, string) -> bool
.startsWith(string, string) -> bool
.endsWith(string, string) -> bool
.getFullYear(timestamp) -> int
.getFullYear(timestamp, string) -> int
.getMonth(timestamp) -> int
.getMonth(timestamp, string) -> int
.getDayOfYear(timestamp) -> int
.getDayOfYear(timestamp, string) -> int
.getDayOfMonth(timestamp) -> int
.getDayOfMonth(timestamp, string) -> int
.getDate(timestamp) -> int
.getDate(timestamp, string) -> int
.getDayOfWeek(timestamp) -> int
.getDayOfWeek(timestamp, string) -> int
.getHours(timestamp) -> int
.getHours(timestamp, string) -> int
.getHours(duration) -> int
.getMinutes(timestamp) -> int
.getMinutes(timestamp, string) -> int
.getMinutes(duration) -> int
.getSeconds(timestamp) -> int
.getSeconds(timestamp, string) -> int
.getSeconds(duration) -> int
.getMilliseconds(timestamp) -> int
.getMilliseconds(timestamp, string) -> int
.getMilliseconds(duration) -> int
optional.of(A) -> optional(A)
optional.ofNonZeroValue(A) -> optional(A)
optional.none() -> optional(A)
.hasValue(optional(A)) -> bool
.value(optional(A)) -> A
.or(optional(A), optional(A)) -> optional(A)
.orValue(optional(A), A) -> A
.charAt(string, int) -> string
.indexOf(string, string) -> int
.indexOf(string, string, int) -> int
.lastIndexOf(string, string) -> int
.lastIndexOf(string, string, int) -> int
.join(list(string)) -> string
.join(list(string), string) -> string
.lowerAscii(string) -> string
.upperAscii(string) -> string
.replace(string, string, string) -> string
.replace(string, string, string, int) -> string
.split(string, string) -> list(string)
.split(string, string, int) -> list(string)
.substring(string, int) -> string
.substring(string, int, int) -> string
.trim(string) -> string
.format(string, list(dyn)) -> string
strings.quote(string) -> string
jsonpatch.escapeKey(string) -> string
sets.contains(list(A), list(A)) -> bool
sets.equivalent(list(A), list(A)) -> bool
sets.intersects(list(A), list(A)) -> bool
.indexOf(list(A), A) -> int
.lastIndexOf(list(A), A) -> int
.slice(list(A), int, int) -> list(A)
.flatten(list(list(A))) -> list(A)
.flatten(list(dyn)) -> list(dyn)
.flatten(list(dyn), int) -> list(dyn)
.distinct(list(A)) -> list(A)
.reverse(list(A)) -> list(A)
lists.range(int) -> list(int)
.@sortByAssociatedKeys(list(A), list(B)) -> list(A)
cel.@mapInsert(map(A, B), A, B) -> map(A, B)
cel.@mapInsert(map(A, B), map(A, B)) -> map(A, B)
.find(string, string) -> string
.findAll(string, string) -> list(string)
.findAll(string, string, int) -> list(string)
url(string) -> kubernetes.URL
isURL(string) -> bool
.getScheme(kubernetes.URL) -> string
.getHost(kubernetes.URL) -> string
.getHostname(kubernetes.URL) -> string
.getPort(kubernetes.URL) -> string
.getEscapedPath(kubernetes.URL) -> string
.getQuery(kubernetes.URL) -> map(string, list(string))
quantity(string) -> kubernetes.Quantity
isQuantity(string) -> bool
.sign(kubernetes.Quantity) -> int
.isInteger(kubernetes.Quantity) -> bool
.asInteger(kubernetes.Quantity) -> int
.asApproximateFloat(kubernetes.Quantity) -> double
.add(kubernetes.Quantity, kubernetes.Quantity) -> kubernetes.Quantity
.add(kubernetes.Quantity, int) -> kubernetes.Quantity
.sub(kubernetes.Quantity, kubernetes.Quantity) -> kubernetes.Quantity
.sub(kubernetes.Quantity, int) -> kubernetes.Quantity
.isGreaterThan(kubernetes.Quantity, kubernetes.Quantity) -> bool
.isLessThan(kubernetes.Quantity, kubernetes.Quantity) -> bool
.compareTo(kubernetes.Quantity, kubernetes.Quantity) -> int
ip(string) -> net.IP
isIP(string) -> bool
ip.isCanonical(string) -> bool
.family(net.IP) -> int
.isUnspecified(net.IP) -> bool
.isLoopback(net.IP) -> bool
.isLinkLocalMulticast(net.IP) -> bool
.isLinkLocalUnicast(net.IP) -> bool
.isGlobalUnicast(net.IP) -> bool
cidr(string) -> net.CIDR
isCIDR(string) -> bool
.containsIP(net.CIDR, string) -> bool
.containsIP(net.CIDR, net.IP) -> bool
.containsCIDR(net.CIDR, string) -> bool
.containsCIDR(net.CIDR, net.CIDR) -> bool
.ip(net.CIDR) -> net.IP
.masked(net.CIDR) -> net.CIDR
.prefixLength(net.CIDR) -> int
format.named(string) -> optional(kubernetes.NamedFormat)
.validate(kubernetes.NamedFormat, string) -> optional(list(string))
semver(string) -> kubernetes.Semver
semver(string, bool) -> kubernetes.Semver
isSemver(string) -> bool
isSemver(string, bool) -> bool
.major(kubernetes.Semver) -> int
.minor(kubernetes.Semver) -> int
.patch(kubernetes.Semver) -> int
.isGreaterThan(kubernetes.Semver, kubernetes.Semver) -> bool
.isLessThan(kubernetes.Semver, kubernetes.Semver) -> bool
.compareTo(kubernetes.Semver, kubernetes.Semver) -> int
.path(kubernetes.authorization.Authorizer, string) -> kubernetes.authorization.PathCheck
.check(kubernetes.authorization.PathCheck, string) -> kubernetes.authorization.Decision
.group(kubernetes.authorization.Authorizer, string) -> kubernetes.authorization.GroupCheck
.serviceAccount(kubernetes.authorization.Authorizer, string, string) -> kubernetes.authorization.Authorizer
.resource(kubernetes.authorization.GroupCheck, string) -> kubernetes.authorization.ResourceCheck
.subresource(kubernetes.authorization.ResourceCheck, string) -> kubernetes.authorization.ResourceCheck
.namespace(kubernetes.authorization.ResourceCheck, string) -> kubernetes.authorization.ResourceCheck
.name(kubernetes.authorization.ResourceCheck, string) -> kubernetes.authorization.ResourceCheck
.fieldSelector(kubernetes.authorization.ResourceCheck, string) -> kubernetes.authorization.ResourceCheck
.labelSelector(kubernetes.authorization.ResourceCheck, string) -> kubernetes.authorization.ResourceCheck
.check(kubernetes.authorization.ResourceCheck, string) -> kubernetes.authorization.Decision
.allowed(kubernetes.authorization.Decision) -> bool
.reason(kubernetes.authorization.Decision) -> string
.errored(kubernetes.authorization.Decision) -> bool
.error(kubernetes.authorization.Decision) -> string
";

/// The functions for expressions of resource graphs.
const GRAPH_SIGNATURES: &str = "
random.seededString(int, string) -> string
random.seededInt(int, int, string) -> int
hash.fnv64a(string) -> bytes
hash.sha256(string) -> bytes
hash.md5(string) -> bytes
json.marshal(dyn) -> string
json.unmarshal(string) -> dyn
base64.encode(bytes) -> string
base64.decode(string) -> bytes
lists.setAtIndex(list(A), int, A) -> list(A)
lists.insertAtIndex(list(A), int, A) -> list(A)
lists.removeAtIndex(list(A), int) -> list(A)
.merge(map(A, B), map(A, B)) -> map(A, B)
";

/// Returns whether a function is only for expressions of resource graphs.
pub(super) fn is_of_graphs(function: &str) -> bool {
    GRAPH_SIGNATURES.lines().any(|line| line.trim_start_matches('.').split('(').next() == Some(function))
        && !function.is_empty()
}

/// Ordered types.
const ORDERED: [&str; 8] = ["bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration"];
/// Summable types.
const SUMMED: [&str; 4] = ["int", "uint", "double", "duration"];

/// The internal name of `format` in resource graphs. No expression can use it.
pub(super) const GRAPH_FORMAT: &str = "format in graphs";

/// The named formats, as functions without arguments.
pub(super) const FORMATS: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

static DECLARED: LazyLock<BTreeMap<String, Vec<Overload>>> = LazyLock::new(|| {
    let mut declared: BTreeMap<String, Vec<Overload>> = BTreeMap::new();
    let mut declare = |line: &str| {
        if let Some((name, overload)) = read(line) {
            declared.entry(name).or_default().push(overload);
        }
    };
    SIGNATURES.lines().chain(GRAPH_SIGNATURES.lines()).for_each(&mut declare);
    for operator in ["_<_", "_<=_", "_>_", "_>=_"] {
        for ty in ORDERED {
            declare(&format!("{operator}({ty}, {ty}) -> bool"));
        }
        for (left, right) in [
            ("int", "uint"),
            ("int", "double"),
            ("uint", "int"),
            ("uint", "double"),
            ("double", "int"),
            ("double", "uint"),
        ] {
            declare(&format!("{operator}({left}, {right}) -> bool"));
        }
    }
    for ty in ORDERED {
        declare(&format!(".isSorted(list({ty})) -> bool"));
        declare(&format!(".min(list({ty})) -> {ty}"));
        declare(&format!(".max(list({ty})) -> {ty}"));
        declare(&format!(".sort(list({ty})) -> list({ty})"));
    }
    for ty in SUMMED {
        declare(&format!(".sum(list({ty})) -> {ty}"));
    }
    for name in FORMATS {
        declare(&format!("format.{name}() -> kubernetes.NamedFormat"));
    }
    declared
});

fn read(line: &str) -> Option<(String, Overload)> {
    let (call, result) = line.split_once(" -> ")?;
    let (name, params) = call.trim().strip_suffix(')')?.split_once('(')?;
    let params = split(params).into_iter().map(Type::parse).collect();
    let is_method = name.starts_with('.');
    let name = name.strip_prefix('.').unwrap_or(name).to_owned();
    Some((name, Overload { is_method, params, result: Type::parse(result) }))
}

/// Returns the overloads of a function.
pub(super) fn overloads(function: &str) -> &'static [Overload] {
    DECLARED.get(function).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_read() {
        assert_eq!(overloads("_[_]").len(), 4);
        assert_eq!(overloads("_<_").len(), 14);
        let matches = overloads("matches");
        assert!(!matches[0].is_method && matches[1].is_method);
        assert_eq!(overloads("getQuery")[0].result.to_string(), "map(string, list(string))");
        assert!(SIGNATURES.lines().filter(|line| !line.is_empty()).all(|line| read(line).is_some()));
    }
}
