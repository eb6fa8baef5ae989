"""Stories about the real RunnerPool operator, on hollow hosts: the incidents that taught its rules, and a storm."""
