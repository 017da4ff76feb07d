//! The settings of sequences, by pattern of their names.

use std::collections::BTreeMap;

use idmill::SequenceBuilder;
use idmill_server::Pattern;
use serde_json::{Value, json};

use crate::args::SequenceKeys;
use crate::error::Outcome;

/// Settings by pattern: names first, then prefixes, longest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Sizes(Vec<(Pattern, SequenceKeys)>);

impl Sizes {
    /// Merges the settings of the file with those for all sequences, which have precedence over the pattern
    /// `*`.
    pub(super) fn of(mut by_pattern: BTreeMap<String, SequenceKeys>, all: SequenceKeys) -> Outcome<Self> {
        let any = by_pattern.entry("*".to_owned()).or_default();
        *any = all.or(*any);
        let parsed = by_pattern.into_iter().map(|(pattern, keys)| Ok((pattern.parse::<Pattern>()?, keys)));
        let mut parsed: Vec<_> = parsed.collect::<Outcome<_>>()?;
        parsed.sort_by_cached_key(|(pattern, _)| {
            let text = pattern.to_string();
            (text.ends_with('*'), std::cmp::Reverse(text.len()))
        });
        Ok(Self(parsed))
    }

    /// Returns the settings of a sequence. A setting that the first matching pattern lacks is that of the
    /// next.
    fn of_name(&self, name: &str) -> SequenceKeys {
        let matching = self.0.iter().filter(|(pattern, _)| pattern.matches(name));
        matching.fold(SequenceKeys::default(), |keys, (_, next)| keys.or(*next))
    }

    pub(super) fn apply(&self, name: &str, mut builder: SequenceBuilder<i64>) -> SequenceBuilder<i64> {
        let SequenceKeys { outage_budget, max_buffered, order } = self.of_name(name);
        if let Some(budget) = outage_budget {
            builder = builder.outage_budget(budget);
        }
        if let Some(ids) = max_buffered {
            builder = builder.max_buffered(ids);
        }
        if let Some(order) = order {
            builder = builder.order(order);
        }
        builder
    }

    /// Returns the settings that are set, by pattern.
    pub(super) fn json(&self) -> Value {
        let set = self.0.iter().filter(|(_, keys)| *keys != SequenceKeys::default());
        let rows = set.map(|(pattern, keys)| {
            let budget = keys.outage_budget.map(|budget| humantime::format_duration(budget).to_string());
            let order = keys.order.map(idmill::Order::as_str);
            let keys = json!({ "outage-budget": budget, "max-buffered": keys.max_buffered, "order": order });
            (pattern.to_string(), keys)
        });
        Value::Object(rows.collect())
    }
}

#[cfg(test)]
mod tests {
    use idmill::Order;

    use super::*;

    #[test]
    fn longest_pattern_has_precedence_for_each_setting() {
        let ids = |max_buffered| SequenceKeys { max_buffered: Some(max_buffered), ..SequenceKeys::default() };
        let global = SequenceKeys { order: Some(Order::Global), ..SequenceKeys::default() };
        let by_pattern =
            [("*", ids(1)), ("shop.*", ids(2)), ("shop.eu.*", global), ("shop.eu.orders", ids(3))];
        let by_pattern = by_pattern.map(|(pattern, keys)| (pattern.to_owned(), keys)).into();
        let sizes = Sizes::of(by_pattern, ids(9)).unwrap();
        let of = |name| {
            let keys = sizes.of_name(name);
            (keys.max_buffered.unwrap(), keys.order)
        };
        assert_eq!(of("users"), (9, None), "a flag has precedence over `*`");
        assert_eq!(of("shop.us.orders"), (2, None));
        assert_eq!(of("shop.eu.users"), (2, Some(Order::Global)));
        assert_eq!(of("shop.eu.orders"), (3, Some(Order::Global)));
        assert!(Sizes::of([("a*b".to_owned(), ids(1))].into(), ids(1)).is_err());
    }
}
