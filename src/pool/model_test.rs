//! Owns the model test of the pools: random programs run against a plain map, with an allocator that counts what is alive.

mod checks;
mod ledger;
mod world;

use std::rc::Rc;

use proptest::prelude::*;

use super::{Handle, PoolError, PoolKind};
use world::World;

#[derive(Clone, Debug)]
enum Op {
    Alloc(usize, usize),
    Release(usize),
    ReleaseDead(usize),
    Move(usize, usize),
    MoveDead(usize, usize),
    TakeBack(usize),
    Take(usize),
    Give(usize),
    Discard(usize),
    Adopt(usize, usize, bool),
    Read(usize),
    Reset(usize),
    ResetAll,
    CreatePass,
    DropPass(usize),
    Trim,
    ResetPeak,
    OpenScope,
    CloseScope(usize),
    NearWrap(usize, u32),
}

fn ops() -> impl Strategy<Value = Op> {
    let n = || 0usize..1000;
    let bytes = || prop_oneof![0usize..300, 0usize..20_000];
    prop_oneof![
        12 => (n(), bytes()).prop_map(|(pool, bytes)| Op::Alloc(pool, bytes)),
        6 => n().prop_map(Op::Release),
        2 => n().prop_map(Op::ReleaseDead),
        4 => (n(), n()).prop_map(|(pick, pool)| Op::Move(pick, pool)),
        1 => (n(), n()).prop_map(|(pick, pool)| Op::MoveDead(pick, pool)),
        3 => n().prop_map(Op::TakeBack),
        4 => bytes().prop_map(Op::Take),
        2 => n().prop_map(Op::Give),
        1 => n().prop_map(Op::Discard),
        5 => (n(), n(), any::<bool>()).prop_map(|(pick, pool, born)| Op::Adopt(pick, pool, born)),
        4 => n().prop_map(Op::Read),
        1 => n().prop_map(Op::Reset),
        1 => Just(Op::ResetAll),
        2 => Just(Op::CreatePass),
        2 => n().prop_map(Op::DropPass),
        1 => Just(Op::Trim),
        1 => Just(Op::ResetPeak),
        2 => Just(Op::OpenScope),
        2 => n().prop_map(Op::CloseScope),
        1 => (n(), 0u32..6).prop_map(|(pool, left)| Op::NearWrap(pool, left)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, max_shrink_iters: 4096, ..ProptestConfig::default() })]

    #[test]
    fn test_r08_random_program_agrees_with_the_model(
        limit in prop_oneof![Just(30_000usize), Just(1 << 40)],
        program in proptest::collection::vec(ops(), 1..120),
    ) {
        let mut world = World::new(limit);
        let mut other = World::new(limit);
        let strangers: Vec<Handle> = (0..3).map(|_| other.pools.alloc(other.ids[0], 64).unwrap()).collect();
        for op in &program {
            world.run(op);
            world.check_figures();
            world.check_handles();
            for handle in &strangers {
                let results = [
                    world.pools.get(*handle).err(),
                    world.pools.release(*handle).err(),
                    world.pools.move_to(*handle, world.ids[0]).err(),
                ];
                let is_foreign = |error: &Option<PoolError>| matches!(error, Some(PoolError::Foreign { .. }));
                prop_assert!(results.iter().all(is_foreign));
            }
        }
        let ledger = Rc::clone(&world.ledger);
        drop(world);
        prop_assert_eq!(ledger.bytes.get(), 0, "leaked");
    }
}

#[test]
fn test_r08_stale_handle_names_pool_and_both_generations() {
    let mut world = World::new(1 << 20);
    let tape = world.pools.create_pass().unwrap();
    let handle = world.pools.alloc(tape, 100).unwrap();
    let moved = world.pools.move_to(handle, world.ids[0]).unwrap();
    let text = world.pools.get(handle).map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("'pass 1' had generation 1, its current generation is 2"), "{text}");
    world.pools.release(moved).unwrap();
    let text = world.pools.release(moved).unwrap_err().to_string();
    assert!(text.contains("double release") && text.contains("'persistent' had generation 1"), "{text}");
}

#[test]
fn test_r08_handle_of_a_dropped_pool_is_stale_in_its_successor() {
    let mut world = World::new(1 << 20);
    let first = world.pools.create_pass().unwrap();
    let old = world.pools.alloc(first, 64).unwrap();
    world.pools.reset(first).unwrap();
    world.pools.drop_pass(first).unwrap();
    let second = world.pools.create_pass().unwrap();
    assert_eq!(first.number, second.number);
    assert!(matches!(world.pools.get(old), Err(PoolError::Stale { .. })));
    let new = world.pools.alloc(second, 64).unwrap();
    assert_eq!((new.pool, new.slot), (old.pool, old.slot));
    assert!(matches!(world.pools.release(old), Err(PoolError::DoubleRelease { .. })));
    assert!(matches!(world.pools.alloc(first, 64), Err(PoolError::NotOpen { .. })));
    assert!(world.pools.get(new).is_ok());
}

#[test]
fn test_m07_plan_temporaries_raise_the_peak_as_the_plan_runs() {
    let mut world = World::new(1 << 20);
    let tape = world.pools.create_pass().unwrap();
    let scope = world.pools.open_peak_scope();
    for _ in 0..3 {
        let buffer = world.pools.take_buffer(1000).unwrap();
        world.pools.note_born(tape, 1024).unwrap();
        world.pools.note_dead(tape, 1024).unwrap();
        world.pools.give_buffer(1000, buffer);
    }
    let stats = world.pools.stats_of(PoolKind::Pass);
    assert_eq!((stats.active, stats.peak, stats.cached, stats.reserved), (0, 1024, 1024, 1024));
    assert_eq!(world.pools.close_peak_scope(scope), 1024);
    // A pool that was dropped while a plan still runs in it waits for the plan's values.
    world.pools.note_born(tape, 64).unwrap();
    world.pools.drop_pass(tape).unwrap();
    assert!(world.pools.alloc(tape, 64).is_err());
    world.pools.note_dead(tape, 64).unwrap();
    assert!(world.pools.stats_of_pool(tape).is_err());
}

#[test]
fn test_t15_ten_thousand_tapes_leave_nothing_behind() {
    let mut world = World::new(1 << 20);
    for _ in 0..10_000 {
        let tape = world.pools.create_pass().unwrap();
        let kept = world.pools.alloc(tape, 4096).unwrap();
        let freed = world.pools.alloc(tape, 100).unwrap();
        world.pools.release(freed).unwrap();
        world.pools.drop_pass(tape).unwrap();
        world.pools.release(kept).unwrap();
        assert_eq!(tape.number & 0xfffff, 1);
    }
    let stats = world.pools.stats();
    assert_eq!((stats.active, stats.reserved), (0, 4096 + 128));
}
