"""The real supervisor over fake services: `fake_cluster.py [flags of octavo up]`.  Prints READY and failures."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

from octavo.cli.cluster import ClusterPlan, Machine, ServicePlan, plan_cluster
from octavo.cli.screen import Screen
from octavo.cli.supervisor import Supervisor
from octavo.config.command import ClusterService
from octavo.config.flat import to_argv
from octavo.config.resolve import resolve
from octavo.obs.log import setup
from octavo.obs.progress import ProgressDisplay

FAKE = Path(__file__).with_name("fake_service.py")


class FakePlan(ServicePlan):
    def command(self) -> list[str]:
        return [sys.executable, str(FAKE), self.role, *to_argv(self.config)]


def fake(plan: ServicePlan) -> ServicePlan:
    return FakePlan(plan.name, plan.role, plan.config, plan.env)


async def main() -> int:
    config = resolve(ClusterService, sys.argv[1:]).checked()
    setup("up", "info", "text", sys.stdout)
    config = replace(config, gateway=replace(config.gateway, port=0))
    real = plan_cluster(config, Machine(2, 2**30), "{}")
    plan = ClusterPlan(fake(real.router), tuple(map(fake, real.workers)), fake(real.gateway))
    supervisor = Supervisor(
        plan,
        os.environ,
        Screen(ProgressDisplay(sys.stdout), is_text=True),
        can_restart=config.cluster.restart,
        startup_timeout_s=config.cluster.startup_timeout_s,
        drain_s=config.gateway.shutdown_timeout_s,
        on_ready=lambda addresses: print("READY", addresses["http"], flush=True),
        on_failure=lambda message: print("FAILED", message, flush=True),
    )
    return await supervisor.run()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
