//! What every packing policy promises, kept by those that come with Ardea: as they are, and behind what keeps vertices together.

mod round_robin {
    ardea_coordination::conformance_suite!(ardea_coordination::packing::RoundRobin);
}

mod bin_packing {
    ardea_coordination::conformance_suite!(ardea_coordination::packing::BinPacking);
}

mod compliant_round_robin {
    ardea_coordination::conformance_suite!(ardea_coordination::packing::CompliantRoundRobin);
}

mod by_name {
    use std::sync::Arc;

    use ardea_coordination::packing::{
        JobDemand, PackingConfig, PackingPlan, ResourceManager, ResourceManagers,
    };
    use ardea_core::Result;

    /// A policy as jobs get it: by its name.
    struct ByName(Arc<dyn ResourceManager>);

    impl ResourceManager for ByName {
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
        ResourceManagers::builtin()
            .get("binpack")
            .expect("it is there")
    ));
}
