//! The figures of a healthy job, for tests of the rules.

use std::collections::BTreeMap;

use ardea_rest::Phase;

use super::figures::{
    ContainerFigures, EdgeFigures, Figures, InstanceFigures, VertexFigures, WINDOW,
};

/// Returns an instance with this share of work, all of it on a processor.
pub(super) fn instance(busy: f64) -> InstanceFigures {
    InstanceFigures {
        observed: WINDOW,
        in_per_s: 500.0,
        out_per_s: 500.0,
        out_total: 50_000.0,
        busy,
        busy_cpu: busy,
        idle: 1.0 - busy,
        watermark_s: Some(1_000.0),
        watermark_growth_s: 10.0,
        ..InstanceFigures::default()
    }
}

/// Returns a job `read` → `counts` → `write` with two instances each, of which the first edge is
/// keyed, in one container.
pub(super) fn figures() -> Figures {
    let vertex = |name: &str| VertexFigures {
        name: name.into(),
        instances: BTreeMap::from([(0, instance(0.2)), (1, instance(0.2))]),
        ..VertexFigures::default()
    };
    let edge = |from: &str, to: &str, is_keyed| EdgeFigures {
        from: from.into(),
        to: to.into(),
        is_keyed,
        is_forward: !is_keyed,
    };
    Figures {
        job: "word-count".into(),
        phase: Phase::Running,
        at_ms: 1_010_000,
        vertices: ["read", "counts", "write"].map(vertex).to_vec(),
        edges: vec![edge("read", "counts", true), edge("counts", "write", false)],
        containers: vec![ContainerFigures {
            container: 1,
            host: Some("quay".into()),
            is_up: true,
            cpu_cores: Some(0.5),
            memory_bytes: Some(64 << 20),
            ..ContainerFigures::default()
        }],
        ..Figures::default()
    }
}

#[test]
fn a_healthy_job_has_no_causes() {
    assert_eq!(super::causes(&figures()), []);
}
