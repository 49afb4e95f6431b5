//! The conformance suite for the built-in packing policies, with and without colocation.

mod round_robin {
    ardea_coordination::conformance_suite!(ardea_coordination::packing::RoundRobin);
}

mod bin_packing {
    ardea_coordination::conformance_suite!(ardea_coordination::packing::BinPacking);
}

mod compliant_round_robin {
    ardea_coordination::conformance_suite!(ardea_coordination::packing::CompliantRoundRobin);
}

mod traffic {
    ardea_coordination::conformance_suite!(ardea_coordination::packing::TrafficPacking);
}

mod by_name {
    use std::sync::Arc;

    use ardea_coordination::packing::{
        JobDemand, PackingConfig, PackingPlan, PackingPolicies, PackingPolicy,
    };
    use ardea_core::Result;

    /// A policy as jobs obtain it: from the registry, by its name.
    struct ByName(Arc<dyn PackingPolicy>);

    impl PackingPolicy for ByName {
        fn pack(&self, demand: &JobDemand, config: &PackingConfig) -> Result<PackingPlan> {
            self.0.pack(demand, config)
        }

        fn repack(
            &self,
            current: &PackingPlan,
            demand: &JobDemand,
            config: &PackingConfig,
        ) -> Result<PackingPlan> {
            self.0.repack(current, demand, config)
        }
    }

    ardea_coordination::conformance_suite!(ByName(
        PackingPolicies::builtin()
            .get("binpack")
            .expect("it is there")
    ));
}
