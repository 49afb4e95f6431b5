//! The channel of a bid and the URL on which it was made, computed from numbers.
//!
//! As in the extended NEXMark of the Flink community, half of the bids come through one of four
//! well-known channels, each with one URL. The others come through one of ten thousand, whose
//! number is also in the URL, where queries 21 and 22 read it.

use std::borrow::Cow;

use crate::random::{mix64, scale};

const HOT_CHANNELS: [&str; 4] = ["Apple", "Google", "Facebook", "Baidu"];
const OTHER_CHANNELS: u64 = 10_000;

/// The channel through which a bid came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    /// A well-known channel, by its index in the list.
    Hot(usize),
    /// One of the other channels, by its number.
    Other(u64),
}

impl Channel {
    /// Returns the channel for 64 random bits.
    pub(crate) fn from_bits(bits: u64) -> Self {
        if bits & 1 == 0 {
            Self::Hot(((bits >> 1) & 3) as usize)
        } else {
            Self::Other(scale(bits, OTHER_CHANNELS))
        }
    }

    /// Returns the channel's name: `Apple`, or `channel-123`.
    pub(crate) fn name(self) -> Cow<'static, str> {
        match self {
            Self::Hot(place) => Cow::Borrowed(HOT_CHANNELS[place]),
            Self::Other(number) => Cow::Owned(format!("channel-{number}")),
        }
    }

    /// Returns the URL of bids through this channel.
    pub(crate) fn url(self) -> String {
        let page = |bits: u64| {
            let word = |shift: u32| Word(mix64(bits.rotate_left(shift)));
            format!(
                "https://www.nexmark.com/{}/{}/{}/item.htm?query=1",
                word(0),
                word(21),
                word(42)
            )
        };
        match self {
            Self::Hot(place) => page(mix64(place as u64 + 1)),
            Self::Other(number) => format!("{}&channel_id={number}", page(mix64(number + 1_000))),
        }
    }
}

/// Five lower-case letters from random bits.
struct Word(u64);

impl std::fmt::Display for Word {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut bits = self.0;
        let letters: [u8; 5] = std::array::from_fn(|_| {
            let letter = b'a' + (bits % 26) as u8;
            bits /= 26;
            letter
        });
        letters
            .iter()
            .try_for_each(|&letter| std::fmt::Write::write_char(formatter, char::from(letter)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_channels_are_well_known_and_every_one_has_its_own_url() {
        let channels: Vec<Channel> = (0..10_000)
            .map(|number| Channel::from_bits(mix64(number)))
            .collect();
        let hot = channels
            .iter()
            .filter(|channel| matches!(channel, Channel::Hot(_)))
            .count();
        assert!((4_800..5_200).contains(&hot), "{hot}");
        let urls: std::collections::HashMap<String, Channel> = channels
            .iter()
            .map(|&channel| (channel.url(), channel))
            .collect();
        assert!(
            channels
                .iter()
                .all(|channel| urls[&channel.url()] == *channel)
        );
    }

    #[test]
    fn a_channel_of_the_many_has_its_number_in_name_and_url() {
        let channel = Channel::Other(123);
        assert_eq!(channel.name(), "channel-123");
        let url = channel.url();
        assert!(
            url.starts_with("https://www.nexmark.com/")
                && url.ends_with("/item.htm?query=1&channel_id=123")
        );
        assert_eq!(url.split('/').count(), 7);
    }
}
