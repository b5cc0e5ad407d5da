# SPDX-License-Identifier: Apache-2.0
"""What is said: domains, guarantees, policies, certificates, as typed values. No private row is ever here."""
