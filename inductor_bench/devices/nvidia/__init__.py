"""The tables and rules of NVIDIA's GPUs. All facts about NVIDIA's hardware are in this folder."""
