"""Counts the blocks of each request, too, and chooses who has to go before any append."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from assignment.provided.serving import Chunk, OutOfBlocks, Step


class Job:
    """A request. `line` says where it stands; it and its forks have the numbers up to `end`."""

    def __init__(self, number, tokens, line, end):
        self.number, self.tokens, self.line, self.end = number, tokens, line, end
        self.given = line + (end - line) / 2  # its forks have the numbers from here on
        self.cached = 0  # computed
        self.blocks = 0  # by our own count; 0 while it waits
        self.prefilling = False

    @property
    def newest_only(self):
        return self.blocks > 0 and not self.prefilling

    def share(self):
        """Half of the numbers that are left, for a new fork and what may stem from it."""
        first, self.given = self.given, (self.given + self.end) / 2
        return first, self.given


class Scheduler:
    def __init__(self, cache: object, max_tokens: int, max_sequences: int):
        if not 1 <= max_sequences <= max_tokens:
            raise ValueError(f"{max_sequences} of {max_tokens}")
        self.cache, self.max_tokens, self.max_sequences = cache, max_tokens, max_sequences
        self.jobs: list[Job] = []
        self.next_line = 0
        self.plan: list[tuple[Job, int]] | None = None

    def named(self, number):
        return next((job for job in self.jobs if job.number == number), None)

    def running(self):
        return [job for job in self.jobs if job.blocks]

    def blocks(self, length):
        return (length + self.cache.block_size - 1) // self.cache.block_size

    def line_up(self, job):
        self.jobs = sorted([*self.jobs, job], key=lambda each: each.line)

    def add(self, request: int, tokens: Sequence[int], max_new_tokens: int) -> None:
        if self.named(request) is not None:
            raise ValueError(f"a second {request}")
        if min(len(tokens), max_new_tokens) < 1:
            raise ValueError(f"{request}: {len(tokens)} tokens, {max_new_tokens} to come")
        if self.blocks(len(tokens) + max_new_tokens - 1) > self.cache.num_blocks:
            raise ValueError(
                f"{request}: too long: {len(tokens)}, {max_new_tokens} to come, blocks: "
                f"{self.cache.num_blocks} times {self.cache.block_size}"
            )
        line = Fraction(self.next_line)
        self.next_line += 1
        self.line_up(Job(request, list(tokens), line, line + 1))

    def schedule(self) -> Step:
        if self.plan is not None:
            raise RuntimeError("not committed")
        preempted, copies = [], []
        while self.too_few():
            preempted.append(self.send_away())
        plan = []
        decodes = [job for job in self.running() if job.newest_only]
        for job in decodes:
            while job.blocks:
                try:
                    copies += self.cache.append(job.number, job.tokens[-1:])
                    job.blocks = self.blocks(len(job.tokens))
                    plan.append((job, 1))
                    break
                except OutOfBlocks:  # a shared block was to be copied
                    preempted.append(self.send_away())
        room = self.max_tokens - len(plan)
        for job in self.running():
            if job.prefilling and room:
                plan.append((job, min(room, len(job.tokens) - job.cached)))
                room -= plan[-1][1]
        if not preempted:
            for job in self.jobs:
                if job.blocks:
                    continue
                if not room or len(self.running()) == self.max_sequences or not self.let_in(job):
                    break
                plan.append((job, min(room, len(job.tokens) - job.cached)))
                room -= plan[-1][1]
        self.plan = plan or None
        return Step(
            tuple(
                Chunk(
                    job.number,
                    job.cached,
                    tuple(job.tokens[job.cached : job.cached + count]),
                    job.cached + count == len(job.tokens),
                )
                for job, count in plan
            ),
            tuple(copies),
            tuple(preempted),
            tuple(job.number for job in self.jobs if not job.blocks),
        )

    def too_few(self):
        """Fewer blocks are free than the decodes need, even if none is to be copied."""
        needed = sum(
            self.blocks(len(job.tokens)) - job.blocks for job in self.running() if job.newest_only
        )
        return needed > self.cache.num_free

    def send_away(self):
        last = self.running()[-1]
        self.cache.close(last.number)
        last.blocks, last.cached = 0, 0
        return last.number

    def let_in(self, job):
        try:
            job.cached = self.cache.open(job.number, job.tokens)
        except OutOfBlocks:
            return False
        job.blocks, job.prefilling = self.blocks(len(job.tokens)), True
        return True

    def commit(self, new_tokens: Mapping[int, int]) -> None:
        if self.plan is None:
            raise RuntimeError("no step")
        done = [job for job, count in self.plan if job.cached + count == len(job.tokens)]
        if {job.number for job in done} != new_tokens.keys():
            raise ValueError("the tokens are not those of the step")
        for job, count in self.plan:
            job.cached += count
            self.cache.commit(job.number, count)
        for job in done:
            job.prefilling = False
            job.tokens.append(new_tokens[job.number])
        self.plan = None

    def fork(self, request: int, new_request: int, token: int) -> None:
        job = self.named(request)
        if job is None or not job.newest_only or self.plan is not None:
            raise ValueError(f"{request} cannot be forked now")
        if self.named(new_request) is not None:
            raise ValueError(f"a second {new_request}")
        child = Job(new_request, [*job.tokens[:-1], token], *job.share())
        if len(self.running()) < self.max_sequences:
            self.cache.fork(request, new_request)
            child.blocks, child.cached = job.blocks, job.cached
        self.line_up(child)

    def remove(self, request: int) -> None:
        job = self.named(request)
        if job is None:
            raise ValueError(f"{request} is unknown")
        self.jobs.remove(job)
        if job.blocks:
            self.cache.close(request)
