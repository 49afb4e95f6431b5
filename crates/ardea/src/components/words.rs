//! A spout of random words.

use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, Result};
use ardea_topology::{ComponentContext, Next, Outcome, Outputs, Settings, Spout, SpoutCollector};
use serde::Deserialize;

/// The syllables of words.
const SYLLABLES: [&str; 16] = [
    "ka", "lo", "mi", "ne", "ru", "sa", "te", "vo", "ba", "di", "fu", "go", "he", "ji", "pa", "zu",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WordsSettings {
    rate: Option<f64>,
    total: Option<u64>,
    #[serde(default = "a_thousand")]
    vocabulary: u32,
    #[serde(default = "one")]
    seed: u64,
}

fn a_thousand() -> u32 {
    1000
}

fn one() -> u64 {
    1
}

/// A spout of random words: the same seed and instance give the same words.
pub(super) struct Words {
    rate: Option<f64>,
    left: Option<u64>,
    vocabulary: u32,
    random: u64,
    emitted: u64,
    /// The clock, and the time at which the first word was due.
    began: Option<(Clock, Duration)>,
    word: String,
}

impl Words {
    pub(super) fn of(settings: &Settings) -> Result<Self> {
        let WordsSettings {
            rate,
            total,
            vocabulary,
            seed,
        } = settings.parse()?;
        let wrong = |what: &str| Err(Error::new(ErrorCode::InvalidConfig, what));
        if rate.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            return wrong("the rate of spout words is a number greater than zero");
        }
        if vocabulary == 0 {
            return wrong("the vocabulary of spout words has at least one word");
        }
        Ok(Words {
            rate,
            left: total,
            vocabulary,
            random: seed,
            emitted: 0,
            began: None,
            word: String::new(),
        })
    }

    /// Returns the next number of a pseudorandom sequence (splitmix64).
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns the time until the next word is due; `None` if it is due now.
    fn wait(&self) -> Option<Duration> {
        let (rate, (clock, began)) = (self.rate?, self.began.as_ref()?);
        let due = Duration::try_from_secs_f64(self.emitted as f64 / rate).ok()?;
        let passed = clock.now().saturating_sub(*began);
        due.checked_sub(passed).filter(|wait| !wait.is_zero())
    }
}

impl Spout for Words {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["word"])
    }

    fn open(&mut self, context: &ComponentContext) -> Outcome {
        let instance = u64::from(context.instance().index);
        self.random ^= (instance + 1).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.began = Some((context.clock().clone(), context.clock().now()));
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        if self.left == Some(0) {
            return Ok(Next::Done);
        }
        if let Some(wait) = self.wait() {
            return Ok(Next::Wait(wait));
        }
        let mut number = self.next_random() % u64::from(self.vocabulary);
        self.word.clear();
        // Different numbers give different words: the number's digits, lowest first, at least two.
        for place in 0.. {
            if place >= 2 && number == 0 {
                break;
            }
            self.word.push_str(SYLLABLES[(number % 16) as usize]);
            number /= 16;
        }
        out.emit([self.word.as_str()])?;
        self.emitted += 1;
        self.left = self.left.map(|left| left - 1);
        Ok(Next::More)
    }
}
