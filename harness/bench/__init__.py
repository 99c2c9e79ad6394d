"""Times implementations side by side, next to what the machine could do at best. `warpcheck bench` is its command.

A *workload* is one call's shape, dtype, parameters and kind of values (`workload`); a *configuration* is a workload on one
implementation or competitor. All measuring is done in a child process (`measure`), one configuration at a time; the parent
(`meter`) never touches CUDA, and takes a new child when one dies or hangs.

What a number means:

Time is between two CUDA events around the replay of a CUDA graph, divided by the calls in it. The device is kept busy
(a kernel that spins) until all of that is queued, so the host's share is not in it. Where a call cannot be captured,
the events stand around plain calls, likewise queued behind the spinning kernel; such a time is marked.

Cold: each call of the graph has its own buffers, together at least three times the L2 cache (or 1024 of them), and the
results are kept until the end, so that no call finds its inputs or its output's lines there. Before each replay the buffers that
a call writes are restored from a pristine copy and then as much other memory as four caches hold is read; neither is timed.
A mask in place can so be timed as what it is: every call gets fresh logits, never the -inf of the call before.

Warm: one call a replay, on one buffer, restored immediately before, so that its lines are in L2 and modified, as logits are that
a matrix product has just written. Nothing is subtracted: the two events and the start of a graph cost about 2 us, in the
floor too. A workload that reads and writes more bytes than the cache holds has no warm time: restoring alone, which reads one
copy and writes another, would fill it.

The copy ceiling is `copy_` of as many bytes as the call has to read and write at least, timed in the same way, cold and warm, for
each workload; the matmul ceiling is a product of two square matrices of normal values of the workload's dtype. The floor is the
larger of the two times that follow: bytes by the copy, operations by the matmul.

Extra memory is what a second call allocates at its peak, its result included, and what the first left allocated for
later ones (workspaces), by torch's counters: memory that a library takes from the driver itself is not in it.

A configuration is timed only after its results were judged by the operator's oracle, on the very inputs that are timed; and
after the timing the last replay's results must be what was judged, bit for bit (or right once more, where an
implementation may differ from run to run). So a kernel that is wrong, or that runs on a stream of its own and is not
in the graph, has no time.
"""
