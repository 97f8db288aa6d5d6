"""What a review needs: the canonical form of a spec, and what two specs or bundles differ in. Not loaded by `check`."""
