"""What runs in disposable processes: the capture, the measurements, the timing of kernels.

The only room that imports torch and Triton, beside the harness of standalone files. Processes are started by its name;
no other room imports it. It may import records, devices, messages, store and source.

The folder ``upstream`` imports the private modules of torch and Triton for the others. Five places import some by
themselves, because they work on torch's objects: ``bench/library/lowering``, ``bench/library/choices``,
``costs/operators`` (fake tensors), ``launches/operator_watch`` (the dispatch mode) and the harness, which is pasted
into files that run without this package.
"""
