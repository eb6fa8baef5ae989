"""The stories that can be run, by name."""

from __future__ import annotations

from remuda.sim.scenarios.dispatch.every_step import EVERY_STEP
from remuda.sim.scenarios.dispatch.lists_lie import LISTS_LIE
from remuda.sim.scenarios.dispatch.mint_fails import MINT_FAILS_AFTER_STAMP
from remuda.sim.scenarios.dispatch.reaper_kills import REAPER_KILLS_LIVE_JOB
from remuda.sim.scenarios.dispatch.runner_shuffle import RUNNER_SHUFFLE
from remuda.sim.scenarios.dispatch.server_deploy import SERVER_DEPLOY
from remuda.sim.scenarios.dispatch.small_limits import SMALL_LIMITS
from remuda.sim.scenarios.dispatch.stamped_without_claim import STAMPED_WITHOUT_CLAIM
from remuda.sim.scenarios.dispatch.storm import DISPATCH_STORM
from remuda.sim.scenarios.dispatch.webhook_lost import WEBHOOK_LOST
from remuda.sim.scenarios.dispatch.webhooks_dropped import WEBHOOKS_DROPPED
from remuda.sim.scenarios.hosts.bad_agent import HOSTS_BAD_AGENT
from remuda.sim.scenarios.keep_n.story import KEEP_N
from remuda.sim.scenarios.pools.bad_image import BAD_IMAGE
from remuda.sim.scenarios.pools.capped_tenant import CAPPED_TENANT
from remuda.sim.scenarios.pools.poison_node import POISON_NODE
from remuda.sim.scenarios.pools.pool_renamed import POOL_RENAMED
from remuda.sim.scenarios.pools.roll_pull_wave import ROLL_PULL_WAVE
from remuda.sim.scenarios.pools.storm import POOLS_STORM
from remuda.sim.scenarios.pools.terminal_and_deleting import TERMINAL_AND_DELETING

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        KEEP_N,
        ROLL_PULL_WAVE,
        BAD_IMAGE,
        POOL_RENAMED,
        POISON_NODE,
        CAPPED_TENANT,
        TERMINAL_AND_DELETING,
        POOLS_STORM,
        WEBHOOK_LOST,
        WEBHOOKS_DROPPED,
        STAMPED_WITHOUT_CLAIM,
        MINT_FAILS_AFTER_STAMP,
        REAPER_KILLS_LIVE_JOB,
        RUNNER_SHUFFLE,
        SERVER_DEPLOY,
        EVERY_STEP,
        LISTS_LIE,
        SMALL_LIMITS,
        DISPATCH_STORM,
        HOSTS_BAD_AGENT,
    )
}
