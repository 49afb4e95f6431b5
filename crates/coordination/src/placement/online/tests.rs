//! Tests of the on-line placement, with simulated time and traffic.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::*;
use crate::packing::{
    InstanceId, JobDemand, PackingConfig, PackingPolicy, Resources, RoundRobin, VertexDemand,
};
use crate::placement::{BalanceFactor, CandidateLimits, TrafficRates, better_placement};

fn at(second: u64) -> Duration {
    Duration::from_secs(second)
}

fn config(mode: PlacementMode) -> PlacementConfig {
    PlacementConfig {
        mode,
        window: at(10),
        cooldown: at(120),
        move_cost: 1_000,
        ..PlacementConfig::default()
    }
}

/// A job whose sources send mostly to one sink each, with noise, over two hosts. Its control loop
/// is driven by a clock of whole seconds.
struct Simulated {
    placement: OnlinePlacement,
    plan: PackingPlan,
    noise: u64,
    /// The seconds at which a plan was applied or proposed.
    changes: Vec<u64>,
}

impl Simulated {
    fn new(mode: PlacementMode) -> Self {
        let demand = JobDemand::new("pairs")
            .vertex(VertexDemand::new("reads", 8, Resources::ZERO))
            .vertex(VertexDemand::new("writes", 8, Resources::ZERO));
        let config_of_plan = PackingConfig {
            containers: NonZeroU32::new(2),
            ..PackingConfig::default()
        };
        Simulated {
            placement: OnlinePlacement::new(config(mode)),
            plan: RoundRobin.pack(&demand, &config_of_plan).unwrap(),
            noise: 7,
            changes: Vec::new(),
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        self.noise % below
    }

    /// Returns rates at which source `i` sends to sink `i + shift` and, as noise, to all others.
    fn rates(&mut self, shift: u32) -> TrafficRates {
        let mut rates = TrafficRates::assumed();
        for from in 0..8 {
            for to in 0..8 {
                let is_partner = to == (from + shift) % 8;
                let mean = if is_partner { 10_000 } else { 1_000 };
                let rate = mean / 2 + self.random(mean);
                let to = InstanceId::new("writes", to);
                let from = InstanceId::new("reads", from);
                rates.measure(&from, &to, rate as f64).unwrap();
            }
        }
        rates
    }

    fn run(&mut self, seconds: std::ops::Range<u64>, shift: u32) {
        for second in seconds {
            let now = at(second);
            let tick = PlacementEvent::Tick { is_running: true };
            let Some(PlacementAction::Compare) = self.placement.on(now, tick) else {
                continue;
            };
            let rates = self.rates(shift);
            let limits = CandidateLimits {
                balance: BalanceFactor(10),
                groups: None,
                move_cost: 1_000 / 120,
            };
            let (config, hosts) = (PackingConfig::default(), BTreeMap::new());
            let best = better_placement(&self.plan, &config, &hosts, &rates, limits).unwrap();
            let compared = PlacementEvent::Compared(best.map(Box::new));
            match self.placement.on(now, compared) {
                Some(PlacementAction::Apply(_, plan)) => {
                    self.changes.push(second);
                    self.plan = *plan;
                    let applied = PlacementEvent::Applied { is_done: true };
                    assert_eq!(self.placement.on(now, applied), None);
                }
                Some(PlacementAction::Propose(_)) => self.changes.push(second),
                _ => {}
            }
        }
    }
}

#[test]
fn an_hour_of_noise_changes_nothing() {
    for mode in [PlacementMode::Propose, PlacementMode::Apply] {
        let mut job = Simulated::new(mode);
        job.run(0..3_600, 2);
        assert_eq!(job.changes, [0_u64; 0]);
        assert_eq!(job.placement.proposal(), None);
    }
}

#[test]
fn a_shift_of_traffic_is_followed_once_after_three_windows() {
    let mut job = Simulated::new(PlacementMode::Apply);
    job.run(0..600, 2);
    let before = job.plan.clone();
    job.run(600..3_600, 1);
    assert_eq!(job.changes, [620]);
    assert!(!before.change_to(&job.plan).moved.is_empty());
    job.run(3_600..4_200, 2);
    assert_eq!(job.changes, [620, 3_620]);
}

#[test]
fn a_proposal_is_repeated_after_the_cool_down_at_the_earliest() {
    let mut job = Simulated::new(PlacementMode::Propose);
    job.run(0..300, 1);
    assert_eq!(job.changes, [30, 150, 270]);
    assert!(job.placement.proposal().is_some());
    job.run(300..310, 2);
    assert_eq!(
        job.placement.proposal(),
        None,
        "the traffic has shifted back"
    );
}

fn replacement(cut_before: u64, cut_after: u64, moves: usize) -> Option<Box<CandidatePlacement>> {
    Some(Box::new(CandidatePlacement {
        plan: Simulated::new(PlacementMode::Off).plan,
        cut_before,
        cut_after,
        moves,
    }))
}

/// Compares at the end of each of `windows` windows, and returns the actions.
fn compare(
    placement: &mut OnlinePlacement,
    windows: u64,
    replacement: &Option<Box<CandidatePlacement>>,
) -> Vec<PlacementAction> {
    let mut actions = Vec::new();
    for second in 0..=windows * 10 {
        let tick = PlacementEvent::Tick { is_running: true };
        if let Some(PlacementAction::Compare) = placement.on(at(second), tick) {
            let compared = PlacementEvent::Compared(replacement.clone());
            actions.extend(placement.on(at(second), compared));
        }
    }
    actions
}

#[test]
fn a_replacement_below_the_margin_or_its_cost_is_ignored() {
    for (before, after, moves) in [(1_000, 801, 1), (1_000, 0, 120), (0, 0, 1)] {
        let mut placement = OnlinePlacement::new(config(PlacementMode::Propose));
        let actions = compare(&mut placement, 9, &replacement(before, after, moves));
        assert!(actions.is_empty(), "{before} to {after} by {moves} moves");
    }
    let mut placement = OnlinePlacement::new(config(PlacementMode::Propose));
    let actions = compare(&mut placement, 3, &replacement(1_000, 800, 1));
    let proposal = PlacementProposal {
        cut_before: 1_000,
        cut_after: 800,
        moves: 1,
    };
    assert_eq!(actions, [PlacementAction::Propose(proposal)]);
}

#[test]
fn an_interruption_of_the_job_begins_the_count_anew() {
    let mut placement = OnlinePlacement::new(config(PlacementMode::Propose));
    let better = replacement(1_000, 0, 1);
    assert!(compare(&mut placement, 2, &better).is_empty());
    let stopped = PlacementEvent::Tick { is_running: false };
    assert_eq!(placement.on(at(21), stopped), None);
    let late = PlacementEvent::Compared(better);
    assert_eq!(placement.on(at(22), late), None, "it was not requested");
    assert_eq!(placement.proposal(), None);
}

#[test]
fn a_refused_change_is_tried_again_after_the_cool_down() {
    let mut placement = OnlinePlacement::new(config(PlacementMode::Apply));
    let better = replacement(1_000, 0, 1);
    assert_eq!(compare(&mut placement, 3, &better).len(), 1);
    let tick = PlacementEvent::Tick { is_running: true };
    assert_eq!(
        placement.on(at(100), tick.clone()),
        None,
        "the change is under way"
    );
    let refused = PlacementEvent::Applied { is_done: false };
    assert_eq!(placement.on(at(100), refused), None);
    let mut applied = Vec::new();
    for second in 101..400 {
        let now = at(second);
        if let Some(PlacementAction::Compare) = placement.on(now, tick.clone())
            && let Some(PlacementAction::Apply(..)) =
                placement.on(now, PlacementEvent::Compared(better.clone()))
        {
            applied.push(second);
            break;
        }
    }
    assert_eq!(applied, [221]);
}

#[test]
fn a_job_without_on_line_placement_compares_nothing() {
    let mut placement = OnlinePlacement::new(config(PlacementMode::Off));
    assert!(compare(&mut placement, 9, &replacement(1_000, 0, 1)).is_empty());
}
