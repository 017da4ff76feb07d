//! The valid values of an option, and their description in messages and pages.

use std::time::Duration;

use super::super::Address;
use super::super::query::parse_duration;
use super::super::refuse;
use super::field::{Typed as _, Word};
use idmill::Result;

/// The text of an optional duration that is unset.
pub(super) const NONE: &str = "none";

/// The valid values of an option. Created by [`words`], [`whole`], [`duration`] and [`text`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// One of these words, each with its meaning.
    Words(fn() -> Vec<(&'static str, &'static str)>),
    /// A whole number within these bounds, in digits.
    Whole {
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// A duration within these bounds, each written as in a URL.
    Duration {
        /// The shortest.
        least: &'static str,
        /// The longest.
        most: &'static str,
        /// The duration must be a multiple of this; empty for no restriction.
        step: &'static str,
        /// Whether the value may be `none`.
        none: bool,
    },
    /// Text that meets a rule.
    Text {
        /// The placeholder in a list of options: `NAME`.
        hint: &'static str,
        /// The rule, as the object of "write": "the path".
        rule: &'static str,
        /// Returns whether a text meets the rule.
        fits: fn(&str) -> bool,
    },
}

/// Allows the words of an enumeration; `true` or `false` for a `bool`.
pub const fn words<W: Word>() -> Kind {
    Kind::Words(|| W::WORDS.iter().map(|(_, word, means)| (*word, *means)).collect())
}

/// Allows a whole number from `least` to `most`.
pub const fn whole(least: u64, most: u64) -> Kind {
    Kind::Whole { least, most }
}

/// Allows a duration from `least` to `most`, both written as in a URL: `duration("100ms", "1h")`.
pub const fn duration(least: &'static str, most: &'static str) -> Kind {
    Kind::Duration { least, most, step: "", none: false }
}

/// Allows any text that meets a rule. `rule` describes the rule, `fits` checks it, and `hint` is the
/// placeholder in a list of options.
pub const fn text(hint: &'static str, rule: &'static str, fits: fn(&str) -> bool) -> Kind {
    Kind::Text { hint, rule, fits }
}

/// The timeout of one request to a store.
pub const TIMEOUT: Kind = duration("1ms", "24h");

/// The path of a file.
pub const FILE: Kind = text("FILE", "the path of a file", |path| !path.is_empty());

/// The address of a server or an emulator.
pub const ADDRESS: Kind =
    text("HOST:PORT", "HOST:PORT, as in `localhost:9010`", |text| Address::parse(text, None).is_some());

impl Kind {
    /// For a duration, also allows `none`. The field must be an `Option`; `None` stands for `none`, even if
    /// the default is a duration.
    #[must_use]
    pub const fn or_none(self) -> Self {
        match self {
            Self::Duration { least, most, step, .. } => Self::Duration { least, most, step, none: true },
            other => other,
        }
    }

    /// For a duration, requires a multiple of `step`.
    #[must_use]
    pub const fn in_steps_of(self, step: &'static str) -> Self {
        match self {
            Self::Duration { least, most, none, .. } => Self::Duration { least, most, step, none },
            other => other,
        }
    }

    /// Checks a value that does not come from a URL, such as an environment variable. `what` names its
    /// source.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid value, with the valid ones.
    pub fn check(self, what: &str, value: &str) -> Result<()> {
        if self.fits(value) {
            return Ok(());
        }
        Err(refuse(format!("{what}={value:?} {}", self.remedy(what, ""))))
    }

    pub(super) fn takes_none(self) -> bool {
        matches!(self, Self::Duration { none: true, .. })
    }

    /// Returns whether a value other than `none` is valid.
    pub(super) fn fits(self, text: &str) -> bool {
        match self {
            Self::Words(words) => words().iter().any(|(word, _)| *word == text),
            Self::Whole { least, most } => {
                u64::of(text).is_some_and(|number| (least..=most).contains(&number))
            }
            Self::Duration { least, most, step, .. } => parse_duration(text).is_some_and(|duration| {
                (bound(least)..=bound(most)).contains(&duration)
                    && (step.is_empty() || duration.as_nanos().is_multiple_of(bound(step).as_nanos()))
            }),
            Self::Text { fits, .. } => fits(text),
        }
    }

    /// Returns the placeholder for a value in a list of options.
    pub(super) fn hint(self, default: &'static str) -> String {
        match self {
            Self::Words(words) => words().iter().map(|(word, _)| *word).collect::<Vec<_>>().join("|"),
            _ if !default.is_empty() => default.to_owned(),
            Self::Whole { .. } => "N".to_owned(),
            Self::Duration { least, .. } => least.to_owned(),
            Self::Text { hint, .. } => hint.to_owned(),
        }
    }

    /// Describes the fault of a value, and the valid values.
    pub(super) fn remedy(self, key: &str, default: &str) -> String {
        let example = if default.is_empty() { String::new() } else { format!(", such as {key}={default}") };
        let number = "write a whole number";
        match self {
            Self::Words(words) => {
                let explained = |(word, means): &(&str, &str)| match *means {
                    "" => (*word).to_owned(),
                    means => format!("{word} ({means})"),
                };
                let words: Vec<_> = words().iter().map(explained).collect();
                format!("is unknown; use one of: {}", words.join(", "))
            }
            Self::Duration { .. } => {
                let none = if self.takes_none() { ", or none" } else { "" };
                let range = self.range();
                format!("cannot be used: {number} and its unit (ms, s, m or h), {range}{none}{example}")
            }
            Self::Whole { .. } => format!("cannot be used: {number}, {}{example}", self.range()),
            Self::Text { rule, .. } => format!("cannot be used: write {rule}{example}"),
        }
    }

    /// Describes the valid values, for a page.
    #[doc(hidden)] // for the test of the page
    pub fn takes(self) -> String {
        match self {
            Self::Words(words) => {
                words().iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ")
            }
            Self::Duration { none: true, .. } => format!("{}, or `none`", self.range()),
            Self::Whole { .. } | Self::Duration { .. } => self.range(),
            Self::Text { rule, .. } => rule.to_owned(),
        }
    }

    /// Returns the meaning of each word, for the store's page.
    #[doc(hidden)] // as `takes`
    pub fn glossary(self) -> String {
        let Self::Words(words) = self else { return String::new() };
        let means = words().into_iter().filter(|(_, means)| !means.is_empty());
        means.flat_map(|(word, means)| [" `", word, "`: ", means, "."]).collect()
    }

    fn range(self) -> String {
        match self {
            Self::Whole { least, most: u64::MAX } => format!("{least} or more"),
            Self::Whole { least, most } => format!("{least} to {most}"),
            Self::Duration { least, most, step: "", .. } => format!("{least} to {most}"),
            Self::Duration { least, most, step, .. } => format!("{least} to {most} in steps of {step}"),
            Self::Words(_) | Self::Text { .. } => String::new(),
        }
    }
}

/// Parses a bound. Bounds are kept as text so that messages can quote them.
fn bound(text: &str) -> Duration {
    parse_duration(text).expect("the bounds and the step of a `Duration` option are valid durations")
}
